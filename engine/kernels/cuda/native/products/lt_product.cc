#include "engine/kernels/cuda/native/products/lt_product.h"

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int kMostMethods = 8;
constexpr uint32_t kAlignment = 16;

bool IsAligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % kAlignment == 0; }

// Checks a call on our own descriptions, which are always sound.
void Must(cublasStatus_t status) { LK_CHECK(status == CUBLAS_STATUS_SUCCESS); }

template <typename T>
void Set(cublasLtMatmulDesc_t product, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  Must(cublasLtMatmulDescSetAttribute(product, attribute, &value, sizeof(value)));
}

template <typename T>
void Prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            const T& value) {
  Must(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
}

// Returns an attribute of a method, 0 where the method does not have it.
uint32_t Config(const cublasLtMatmulAlgo_t& method,
                cublasLtMatmulAlgoConfigAttributes_t attribute) {
  uint32_t value = 0;
  size_t written = 0;
  const auto status =
      cublasLtMatmulAlgoConfigGetAttribute(&method, attribute, &value, sizeof(value), &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : 0;
}

bool SumsInOneGo(const cublasLtMatmulAlgo_t& method) {
  return Config(method, CUBLASLT_ALGO_CONFIG_SPLITK_NUM) <= 1 &&
         Config(method, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) == CUBLASLT_REDUCTION_SCHEME_NONE;
}

}  // namespace

int32_t AlgorithmOf(const cublasLtMatmulAlgo_t& method) {
  return static_cast<int32_t>(Config(method, CUBLASLT_ALGO_CONFIG_ID));
}

bool LtProduct::Takes(const ProductArgs& args) {
  const int64_t element = StorageBytes(args.weight->type());
  const int64_t result = args.rounded == nullptr ? 4 : 2;
  return IsAligned(args.x) && IsAligned(args.y) && IsAligned(args.rounded) &&
         IsAligned(args.bias) && args.ld_x * element % kAlignment == 0 &&
         args.ld_y * result % kAlignment == 0 && args.weight->n_in() * element % kAlignment == 0 &&
         args.weight->n_out() % 4 == 0;
}

LtProduct::LtProduct(const ProductArgs& args) : args_(args) {
  const DeviceWeight& w = *args.weight;
  const cudaDataType_t type = w.type() == StorageType::kFloat32 ? CUDA_R_32F : CUDA_R_16BF;
  Must(cublasLtMatmulDescInit(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  Set(&product_, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (args.bias != nullptr) {
    Set(&product_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    Set(&product_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
    Set(&product_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
  }
  Must(cublasLtMatrixLayoutInit(&w_, type, w.n_in(), w.n_out(), w.n_in()));
  Must(cublasLtMatrixLayoutInit(&x_, type, w.n_in(), args.n_rows, args.ld_x));
  Must(cublasLtMatrixLayoutInit(&y_, args.rounded == nullptr ? CUDA_R_32F : CUDA_R_16BF, w.n_out(),
                                args.n_rows, args.ld_y));
}

std::vector<cublasLtMatmulAlgo_t> LtProduct::Methods(const LtContext& context,
                                                     SumOrder order) const {
  cublasLtMatmulPreferenceOpaque_t preference{};
  Must(cublasLtMatmulPreferenceInit(&preference));
  Prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, context.workspace.size());
  if (order == SumOrder::kInOneGo) {
    Prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE});
  }
  for (const auto attribute :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Prefer(&preference, attribute, kAlignment);
  }
  cublasLtMatmulHeuristicResult_t results[kMostMethods] = {};
  int n_results = 0;
  if (cublasLtMatmulAlgoGetHeuristic(context.handle, &product_, &w_, &x_, &y_, &y_, &preference,
                                     kMostMethods, results, &n_results) != CUBLAS_STATUS_SUCCESS) {
    return {};  // it knows no method
  }
  std::vector<cublasLtMatmulAlgo_t> methods;
  for (int i = 0; i < n_results; ++i) {
    const bool may_run = order == SumOrder::kAny || SumsInOneGo(results[i].algo);
    if (results[i].state == CUBLAS_STATUS_SUCCESS && may_run) {
      methods.push_back(results[i].algo);
    }
  }
  return methods;
}

bool LtProduct::CanRun(const LtContext& context, const cublasLtMatmulAlgo_t& method) const {
  cublasLtMatmulHeuristicResult_t result{};
  return cublasLtMatmulAlgoCheck(context.handle, &product_, &w_, &x_, &y_, &y_, &method, &result) ==
             CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= context.workspace.size();
}

cublasStatus_t LtProduct::Run(const LtContext& context, const cublasLtMatmulAlgo_t& method) const {
  const float one = 1, zero = 0;
  const float* beta = args_.into == GemmArgs::Into::kAccumulate ? &one : &zero;
  void* y = args_.rounded == nullptr ? static_cast<void*>(args_.y) : args_.rounded;
  return cublasLtMatmul(context.handle, &product_, &one, args_.weight->data(), &w_, args_.x, &x_,
                        beta, y, &y_, y, &y_, &method, context.workspace.data(),
                        context.workspace.size(), context.stream);
}

}  // namespace lowkey
