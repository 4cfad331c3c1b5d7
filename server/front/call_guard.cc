#include "server/front/call_guard.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr std::string_view kOpen[] = {
    "/grpc.health.v1.Health/",
    "/",
    "/health",
    "/ready",
    "/version",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
};
constexpr std::string_view kScheme = "bearer ";

constexpr std::pair<std::string_view, Right> kRightsByMethod[] = {
    {"/lowkey.v1.Generation/", Right::kGenerate},
    {"/lowkey.v1.Models/", Right::kRead},
    {"/lowkey.v1.Admin/Stats", Right::kRead},
    {"/lowkey.v1.Admin/Drain", Right::kAdmin},
    {"/inference.GRPCInferenceService/ModelInfer", Right::kGenerate},
    {"/inference.GRPCInferenceService/ModelStreamInfer", Right::kGenerate},
    {"/inference.GRPCInferenceService/ModelReady", Right::kRead},
    {"/inference.GRPCInferenceService/ServerMetadata", Right::kRead},
    {"/inference.GRPCInferenceService/ModelMetadata", Right::kRead},
    {"/inference.GRPCInferenceService/ModelConfig", Right::kRead},
    {"/inference.GRPCInferenceService/ModelStatistics", Right::kRead},
    {"/inference.GRPCInferenceService/RepositoryIndex", Right::kRead},
    {"/grpc.reflection.v1.ServerReflection/", Right::kRead},
    {"/grpc.reflection.v1alpha.ServerReflection/", Right::kRead},
    {"/metrics", Right::kRead},
    {"/v1/models", Right::kRead},
    {"/v1/models/", Right::kRead},
    {"/v1/completions", Right::kGenerate},
    {"/v1/chat/completions", Right::kGenerate},
    {"/v1/responses", Right::kGenerate},
    {"/tokenize", Right::kGenerate},
    {"/detokenize", Right::kGenerate},
    {"/tokenizer_info", Right::kRead},
    {"/lowkey/v1/score", Right::kGenerate},
    {"/lowkey/v1/", Right::kRead},
};

// Whether a method or path is the named one. A name that ends with a slash is a whole service or
// folder, but "/" is one page.
bool IsNamed(std::string_view method, std::string_view name) {
  return name.size() > 1 && name.ends_with('/') ? method.starts_with(name) : method == name;
}

// Returns nullopt unless there is exactly one token: a call has one owner.
std::optional<std::string_view> TokenOf(absl::Span<const std::string_view> authorization) {
  if (authorization.size() != 1 || authorization[0].size() <= kScheme.size()) return std::nullopt;
  const std::string scheme(authorization[0].substr(0, kScheme.size()));
  if (!absl::EqualsIgnoreCase(scheme, std::string(kScheme))) return std::nullopt;
  return authorization[0].substr(kScheme.size());
}

}  // namespace

std::optional<Right> RightFor(std::string_view method) {
  for (std::string_view name : kOpen) {
    if (IsNamed(method, name)) return std::nullopt;
  }
  for (const auto& [name, right] : kRightsByMethod) {
    if (IsNamed(method, name)) return right;
  }
  return Right::kAdmin;
}

absl::StatusOr<Tenant> CallGuard::Check(Right right,
                                        absl::Span<const std::string_view> authorization,
                                        std::string* bearer) const {
  if (tokens_ == nullptr) return Tenant();
  const std::optional<std::string_view> token = TokenOf(authorization);
  if (!token.has_value()) {
    return absl::UnauthenticatedError("authorization: expected one header `Bearer TOKEN`");
  }
  const std::shared_ptr<const TokenTable> table = tokens_->Get();
  const TokenGrant* grant = table->Find(*token);
  if (grant == nullptr) return absl::UnauthenticatedError("authorization: unknown token");
  if (bearer != nullptr) *bearer = grant->tenant->name;
  if (grant->Allows(right)) return *grant->tenant;
  return absl::PermissionDeniedError(absl::StrCat("authorization: the token lacks the right \"",
                                                  std::string(NameOf(right)), "\""));
}

}  // namespace lowkey
