#include "engine/kernels/cuda/native/products/choose_product.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Another kind of methods must take this share of the best time so far. Between kinds that are
// nearly as fast as each other the first wins, in this process as in the next, and rows keep their
// bits.
constexpr double kGain = 0.9;

// Methods that compute the same bits of a row alone, each with the loads that it is tried for.
struct Kind {
  RowBits bits;
  struct Member {
    ProductMethod method;
    int64_t n_rows;  // the load that it is proposed for; 0: all
  };
  std::vector<Member> members;
};

bool AreOne(const ProductMethod& a, const ProductMethod& b) {
  const auto* x = std::get_if<cublasLtMatmulAlgo_t>(&a);
  const auto* y = std::get_if<cublasLtMatmulAlgo_t>(&b);
  if (x == nullptr || y == nullptr) {
    return x == y && std::get<OwnKernel>(a) == std::get<OwnKernel>(b);
  }
  return std::memcmp(x, y, sizeof(*x)) == 0;
}

// Adds a method of cuBLASLt to the kind from `begin` on that has its bits.
absl::Status AddToKinds(ProductTrial& trial, const Kind::Member& member, size_t begin,
                        std::vector<Kind>& kinds) {
  const auto own = absl::MakeSpan(kinds).subspan(begin);
  const auto has = [&](const Kind& kind) {
    return absl::c_any_of(kind.members,
                          [&](const auto& m) { return AreOne(m.method, member.method); });
  };
  auto kind = absl::c_find_if(own, has);
  if (kind == own.end()) {
    LK_ASSIGN_OR_RETURN(RowBits bits, trial.BitsAlone(member.method));
    kind =
        absl::c_find_if(own, [&](const Kind& k) { return absl::c_equal(k.bits, bits, SameBits); });
    if (kind == own.end()) {
      kinds.push_back({std::move(bits), {member}});
      return absl::OkStatus();
    }
  }
  kind->members.push_back(member);
  return absl::OkStatus();
}

// Adds our kernel for few rows to the kind whose bits it has, if any has them.
absl::Status AddInOrder(ProductTrial& trial, absl::Span<Kind> kinds) {
  const ProductMethod method = OwnKernel::kInOrder;
  LK_ASSIGN_OR_RETURN(const RowBits bits, trial.BitsAlone(method));
  const auto kind =
      absl::c_find_if(kinds, [&](const Kind& k) { return absl::c_equal(k.bits, bits, SameBits); });
  if (kind == kinds.end()) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(const std::vector<float> own, trial.Accumulated(method));
  LK_ASSIGN_OR_RETURN(const std::vector<float> theirs,
                      trial.Accumulated(kind->members.front().method));
  if (SameBits(own, theirs)) kind->members.push_back({method, 1});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Kind>> KindsOf(ProductTrial& trial, MethodsToTry wanted,
                                          bool has_warpgroups) {
  std::vector<Kind> kinds;
  for (const ProductMethod& method : trial.OwnMethods(wanted, has_warpgroups)) {
    LK_ASSIGN_OR_RETURN(RowBits bits, trial.BitsAlone(method));
    kinds.push_back({std::move(bits), {{method, 0}}});
  }
  if (wanted != MethodsToTry::kAll && wanted != MethodsToTry::kCublas) return kinds;
  const size_t n_own = kinds.size();
  for (const ProductLoad& load : trial.loads()) {
    for (const ProductMethod& method : trial.CublasMethods(load.n_rows)) {
      LK_RETURN_IF_ERROR(AddToKinds(trial, {method, load.n_rows}, n_own, kinds));
    }
  }
  if (wanted == MethodsToTry::kAll && trial.TakesInOrder()) {
    LK_RETURN_IF_ERROR(AddInOrder(trial, absl::MakeSpan(kinds).subspan(n_own)));
  }
  return kinds;
}

// A kind's best methods; no ranges if the kind has none for some load.
struct KindTrial {
  ChosenProduct product;
  double weighted_us = 0;
};

// Returns the members' times for a load, the fastest first: of those that are proposed for it or
// for the loads beside it, and of all where there are none.
using TimedMethods = std::vector<std::pair<double, const ProductMethod*>>;
absl::StatusOr<TimedMethods> TimeMembers(ProductTrial& trial, const Kind& kind, size_t load) {
  const absl::Span<const ProductLoad> loads = trial.loads();
  const int64_t fewer = loads[load == 0 ? 0 : load - 1].n_rows;
  const int64_t more = loads[std::min(load + 1, loads.size() - 1)].n_rows;
  TimedMethods times;
  for (const bool all : {false, true}) {
    for (const Kind::Member& member : kind.members) {
      const bool is_near = member.n_rows == 0 || (member.n_rows >= fewer && member.n_rows <= more);
      const bool is_known = absl::c_any_of(
          times, [&](const auto& timed) { return AreOne(*timed.second, member.method); });
      if (is_known || !(all || is_near)) continue;
      LK_ASSIGN_OR_RETURN(const double us, trial.Time(loads[load].n_rows, member.method));
      times.emplace_back(us, &member.method);
    }
    if (!times.empty()) break;
  }
  absl::c_stable_sort(times, [](const auto& a, const auto& b) { return a.first < b.first; });
  return times;
}

// Returns the fastest methods of a kind that keep its bits among other rows.
absl::StatusOr<KindTrial> TryKind(ProductTrial& trial, const Kind& kind) {
  KindTrial found;
  int64_t fewer = 0;
  for (size_t i = 0; i < trial.loads().size(); ++i) {
    const ProductLoad& load = trial.loads()[i];
    LK_ASSIGN_OR_RETURN(const TimedMethods times, TimeMembers(trial, kind, i));
    bool keeps_bits = false;
    for (const auto& [us, method] : times) {
      LK_ASSIGN_OR_RETURN(keeps_bits, trial.KeepsBits(fewer, load.n_rows, *method, kind.bits));
      if (!keeps_bits) continue;
      found.product.ranges.push_back({load.n_rows, *method, us});
      found.weighted_us += load.weight * us;
      break;
    }
    if (!keeps_bits) return KindTrial{};
    fewer = load.n_rows;
  }
  return found;
}

}  // namespace

std::string NameOf(const ChosenProduct& product) {
  std::vector<ProductMethod> methods;
  std::string few;
  for (const ChosenProduct::Range& range : product.ranges) {
    if (AreOne(range.method, OwnKernel::kInOrder)) {
      few = absl::StrCat(NameOf(range.method), ", ");
      continue;
    }
    if (std::holds_alternative<OwnKernel>(range.method)) return NameOf(range.method);
    if (absl::c_none_of(methods, [&](const auto& m) { return AreOne(m, range.method); })) {
      methods.push_back(range.method);
    }
  }
  return absl::StrCat(few, "cublasLt by ", methods.size(), " methods");
}

const ProductMethod& ChosenProduct::For(int64_t n_rows) const {
  const auto range = absl::c_find_if(ranges, [&](const Range& r) { return n_rows <= r.most_rows; });
  return (range == ranges.end() ? ranges.back() : *range).method;
}

absl::StatusOr<ChosenProduct> ChooseProductMethods(Device& device, const LtContext& context,
                                                   const DeviceWeight& weight, ProductOutput output,
                                                   MethodsToTry wanted, bool has_warpgroups,
                                                   MultiplyBy multiply) {
  ProductTrial trial(device, context, weight, output, multiply);
  LK_RETURN_IF_ERROR(trial.Prepare());
  ChosenProduct best{{{1, OwnKernel::kPlain, 0}}, ""};
  double best_us = std::numeric_limits<double>::infinity();
  std::vector<std::string> refused;
  LK_ASSIGN_OR_RETURN(const std::vector<Kind> kinds, KindsOf(trial, wanted, has_warpgroups));
  for (const Kind& kind : kinds) {
    LK_ASSIGN_OR_RETURN(KindTrial found, TryKind(trial, kind));
    const std::string name = NameOf(kind.members.front().method);
    if (found.product.ranges.empty()) {
      refused.push_back(absl::StrCat(name, ": a row's bits depend on its company"));
      continue;
    }
    if (found.weighted_us >= kGain * best_us) continue;
    LK_ASSIGN_OR_RETURN(const bool is_right, trial.IsRight([&](int64_t n) -> const ProductMethod& {
      return found.product.For(n);
    }));
    if (!is_right) {
      refused.push_back(absl::StrCat(name, ": wrong numbers"));
      continue;
    }
    best = std::move(found.product);
    best_us = found.weighted_us;
  }
  best.refused = absl::StrJoin(refused, "; ");
  return best;
}

absl::StatusOr<ProductMethod> FastestMethod(const LtContext& context, ProductArgs args,
                                            MultiplyBy multiply) {
  args.into = GemmArgs::Into::kOverwrite;
  ProductMethod best = OwnKernel::kPlain;
  double best_us = std::numeric_limits<double>::infinity();
  if (!LtProduct::Takes(args)) return best;
  for (const auto& method : LtProduct(args).Methods(context, SumOrder::kAny)) {
    LK_ASSIGN_OR_RETURN(const double us, MedianMicroseconds(context, args, method, multiply));
    if (us >= best_us) continue;
    best = method;
    best_us = us;
  }
  return best;
}

}  // namespace lowkey
