#include "engine/runtime/calibration/principal_code_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/fnv1a.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/loader/safetensors.h"
#include "engine/model/rope.h"
#include "engine/model/weight_set.h"
#include "engine/runtime/model_setup.h"

namespace lowkey {
namespace {

constexpr char kFileName[] = "principal.safetensors";
constexpr int64_t kFormat = 3;
constexpr int64_t kPieces = 16, kPieceBytes = 256;

void AddNumber(int64_t value, Fnv1a& hash) { hash.Add(&value, sizeof(value)); }

void AddTensor(const TensorView& t, Fnv1a& hash) {
  AddNumber(static_cast<int64_t>(t.dtype), hash);
  for (const int64_t size : t.shape) AddNumber(size, hash);
  const auto n_bytes = static_cast<int64_t>(t.size_bytes());
  const int64_t piece = std::min(kPieceBytes, n_bytes);
  for (int64_t i = 0; i < kPieces; ++i) {
    hash.Add(t.data + (n_bytes - piece) * i / (kPieces - 1), static_cast<size_t>(piece));
  }
}

// Codes of one kind: [n_layers][n_groups], in four tensors whose names begin alike.
struct Kind {
  const char* prefix = "";
  int64_t n_layers = 0, n_groups = 0, dim = 0;

  std::string Name(const char* tensor) const { return absl::StrCat(prefix, tensor); }
  std::vector<int64_t> numbers() const { return {n_layers, n_groups, dim}; }
  std::vector<int64_t> matrices() const { return {n_layers, n_groups, dim, dim}; }
};
constexpr char kMean[] = "mean", kVariances[] = "variances", kEncode[] = "encode",
               kDecode[] = "decode";

Kind KindOf(const PrefixCodes& c) { return {"", c.n_layers, c.n_groups, c.group.dim()}; }
Kind KeysOf(const HeadCodes& c, int64_t dim) { return {"key_", c.n_layers, c.n_kv_heads, dim}; }
Kind ValuesOf(const HeadCodes& c, int64_t dim) { return {"value_", c.n_layers, c.n_kv_heads, dim}; }

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)};
}

absl::StatusOr<TensorView> FindTensor(const SafetensorsIndex& index, const std::string& name,
                                      DType dtype, const std::vector<int64_t>& shape) {
  const auto it = index.tensors.find(name);
  if (it == index.tensors.end()) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", name, ": missing"));
  }
  const TensorView& view = it->second;
  if (view.dtype == dtype && view.shape == shape) return view;
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", name, ": ", std::string(DTypeName(view.dtype)), " ", ShapeString(view.shape),
      ", expected ", std::string(DTypeName(dtype)), " ", ShapeString(shape)));
}

absl::StatusOr<int64_t> ReadInteger(const SafetensorsIndex& index, const std::string& name) {
  LK_ASSIGN_OR_RETURN(const TensorView view, FindTensor(index, name, DType::kI64, {1}));
  int64_t value = 0;
  std::memcpy(&value, view.data, sizeof(value));
  return value;
}

// Copies the numbers of one code out of a tensor of all.
template <typename T>
std::vector<T> Slice(const TensorView& view, int64_t code, int64_t size) {
  std::vector<T> values(size);
  std::memcpy(values.data(), view.data + code * size * sizeof(T), size * sizeof(T));
  return values;
}

bool IsFinite(float value) { return std::isfinite(value); }
bool IsFinite(uint16_t value) { return (value & 0x7f80u) != 0x7f80u; }  // bf16

template <typename T>
absl::Status CheckFinite(const std::string& name, int64_t code, const std::vector<T>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (IsFinite(values[i])) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", name, ": element ", i, " of code ", code, " is not finite"));
  }
  return absl::OkStatus();
}

absl::Status CheckCode(const Kind& kind, const PrincipalCode& code, int64_t number) {
  LK_RETURN_IF_ERROR(CheckFinite(kind.Name(kMean), number, code.mean));
  LK_RETURN_IF_ERROR(CheckFinite(kind.Name(kVariances), number, code.variances));
  LK_RETURN_IF_ERROR(CheckFinite(kind.Name(kEncode), number, code.encode));
  LK_RETURN_IF_ERROR(CheckFinite(kind.Name(kDecode), number, code.decode));
  for (size_t i = 0; i < code.variances.size(); ++i) {
    const bool is_ordered = i == 0 || code.variances[i] <= code.variances[i - 1];
    if (code.variances[i] >= 0 && is_ordered) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", kind.Name(kVariances), ": ", code.variances[i], " at element ", i,
                     " of code ", number, ", expected descending ones of at least 0"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PrincipalCode>> ParseKind(const SafetensorsIndex& index,
                                                     const Kind& kind) {
  LK_ASSIGN_OR_RETURN(const TensorView mean,
                      FindTensor(index, kind.Name(kMean), DType::kF32, kind.numbers()));
  LK_ASSIGN_OR_RETURN(const TensorView variances,
                      FindTensor(index, kind.Name(kVariances), DType::kF32, kind.numbers()));
  LK_ASSIGN_OR_RETURN(const TensorView encode,
                      FindTensor(index, kind.Name(kEncode), DType::kBF16, kind.matrices()));
  LK_ASSIGN_OR_RETURN(const TensorView decode,
                      FindTensor(index, kind.Name(kDecode), DType::kBF16, kind.matrices()));
  const int64_t dim = kind.dim;
  std::vector<PrincipalCode> codes;
  for (int64_t i = 0; i < kind.n_layers * kind.n_groups; ++i) {
    PrincipalCode& code = codes.emplace_back();
    code.dim = dim;
    code.mean = Slice<float>(mean, i, dim);
    code.variances = Slice<float>(variances, i, dim);
    code.encode = Slice<uint16_t>(encode, i, dim * dim);
    code.decode = Slice<uint16_t>(decode, i, dim * dim);
    LK_RETURN_IF_ERROR(CheckCode(kind, code, i));
  }
  return codes;
}

absl::Status CheckModel(const SafetensorsIndex& index, const Checkpoint& checkpoint) {
  LK_ASSIGN_OR_RETURN(const int64_t format, ReadInteger(index, "format"));
  if (format != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat("format: ", format, ", expected ", kFormat,
                                                      " (lowkey calibrate makes it anew)"));
  }
  LK_ASSIGN_OR_RETURN(const int64_t stated, ReadInteger(index, "weights"));
  if (static_cast<uint64_t>(stated) == WeightsFingerprint(checkpoint)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "weights: a calibration of another model, expected this model's (lowkey calibrate makes it)");
}

absl::StatusOr<PrincipalCodes> ParsePrincipalCodes(const SafetensorsIndex& index,
                                                   const Checkpoint& checkpoint) {
  LK_RETURN_IF_ERROR(CheckModel(index, checkpoint));
  const AttentionGeometry g = GeometryOf(checkpoint.config, StorageType::kFloat32);
  PrincipalCodes codes;
  PrefixCodes& prefixes = codes.prefixes;
  prefixes.group = {HeadsPerGroup(g.n_kv_heads, g.key_dim(), g.head_dim), g.key_dim(), g.head_dim};
  prefixes.n_layers = codes.heads.n_layers = g.n_layers;
  prefixes.n_groups = g.n_kv_heads / prefixes.group.n_heads;
  prefixes.inverse_frequencies = RopeInverseFrequencies(checkpoint.config);
  codes.heads.n_kv_heads = g.n_kv_heads;
  codes.heads.inverse_frequencies = prefixes.inverse_frequencies;
  LK_ASSIGN_OR_RETURN(prefixes.codes, ParseKind(index, KindOf(prefixes)));
  LK_ASSIGN_OR_RETURN(codes.heads.keys, ParseKind(index, KeysOf(codes.heads, g.key_dim())));
  LK_ASSIGN_OR_RETURN(codes.heads.values, ParseKind(index, ValuesOf(codes.heads, g.head_dim)));
  LK_RETURN_IF_ERROR(codes.CheckFits(g));
  return codes;
}

// Adds what a kind's tensors are to `specs`.
void AddSpecs(const Kind& kind, std::vector<TensorSpec>& specs) {
  specs.push_back({kind.Name(kMean), DType::kF32, kind.numbers()});
  specs.push_back({kind.Name(kVariances), DType::kF32, kind.numbers()});
  specs.push_back({kind.Name(kEncode), DType::kBF16, kind.matrices()});
  specs.push_back({kind.Name(kDecode), DType::kBF16, kind.matrices()});
}

absl::Status Append(const std::vector<PrincipalCode>& codes, SafetensorsWriter& writer) {
  absl::Status status;
  const auto append = [&](auto PrincipalCode::*member) {
    for (const PrincipalCode& code : codes) {
      if (status.ok()) status = writer.Append(BytesOf(code.*member));
    }
  };
  append(&PrincipalCode::mean);
  append(&PrincipalCode::variances);
  append(&PrincipalCode::encode);
  append(&PrincipalCode::decode);
  return status;
}

}  // namespace

std::string PrincipalCodePath(const std::string& weights) {
  const std::filesystem::path path(weights);
  constexpr char kGguf[] = ".gguf";
  if (path.extension() != kGguf) return (path / kFileName).string();
  return absl::StrCat((path.parent_path() / path.stem()).string(), ".", kFileName);
}

uint64_t WeightsFingerprint(const Checkpoint& checkpoint) {
  Fnv1a hash;
  AddTensor(checkpoint.embedding, hash);
  AddTensor(checkpoint.final_norm, hash);
  for (const LayerTensors& l : checkpoint.layers) {
    for (const TensorView* t : {&l.attention_norm, &l.ffn_norm, &l.q_norm, &l.k_norm, &l.q_bias,
                                &l.k_bias, &l.v_bias, &l.o_bias}) {
      if (t->data != nullptr) AddTensor(*t, hash);
    }
  }
  EachMatrix(checkpoint, [&](const TensorView& t) { AddTensor(t, hash); });
  return hash.value();
}

absl::Status WritePrincipalCodes(const std::string& path, const PrincipalCodes& codes,
                                 uint64_t fingerprint) {
  const HeadCodes& heads = codes.heads;
  std::vector<TensorSpec> specs = {{"format", DType::kI64, {1}}, {"weights", DType::kI64, {1}}};
  AddSpecs(KindOf(codes.prefixes), specs);
  AddSpecs(KeysOf(heads, heads.keys[0].dim), specs);
  AddSpecs(ValuesOf(heads, heads.values[0].dim), specs);
  const std::string aside = path + ".part";
  LK_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(aside, specs));
  const std::vector<int64_t> integers = {kFormat, static_cast<int64_t>(fingerprint)};
  absl::Status status = writer.Append(BytesOf(integers));
  for (const auto* kind : {&codes.prefixes.codes, &heads.keys, &heads.values}) {
    if (status.ok()) status = Append(*kind, writer);
  }
  if (status.ok()) status = writer.Finish();
  if (status.ok() && std::rename(aside.c_str(), path.c_str()) != 0) {
    status = absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  if (!status.ok()) std::remove(aside.c_str());
  return status;
}

absl::StatusOr<std::shared_ptr<const PrincipalCodes>> ReadPrincipalCodes(
    const std::string& path, const Checkpoint& checkpoint) {
  LK_ASSIGN_OR_RETURN(const Safetensors file, OpenSafetensors(path));
  LK_ASSIGN_OR_RETURN(PrincipalCodes codes,
                      Prefixed(path, ParsePrincipalCodes(file.index, checkpoint)));
  LK_RETURN_IF_ERROR(file.file->CheckWhole());
  return std::make_shared<const PrincipalCodes>(std::move(codes));
}

}  // namespace lowkey
