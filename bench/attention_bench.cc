// Time of attention alone when one sequence decodes at depth, mechanism by mechanism, beside what
// each reads and the machine's bandwidth:
//   attention_bench [--layers 12] [--heads 12] [--kv_heads 12] [--depth 8192] [--threads N]
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/time/clock.h"
#include "bench/machine.h"
#include "engine/attention/atp/compress.h"
#include "engine/attention/atp/policy.h"
#include "engine/attention/atp/top_tokens.h"
#include "engine/attention/attention.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
#include "engine/attention/principal_codes.h"
#include "engine/attention/standard/policy.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/lowrank/principal_basis.h"

ABSL_FLAG(int, layers, 12, "layers");
ABSL_FLAG(int, heads, 12, "query heads");
ABSL_FLAG(int, kv_heads, 12, "KV heads");
ABSL_FLAG(int, head_dim, 64, "numbers in a head");
ABSL_FLAG(int, depth, 8192, "tokens before the one that is decoded");
ABSL_FLAG(int, threads, 0, "0: one per core");
ABSL_FLAG(int, runs, 9, "steps of each figure; the median is printed");

ABSL_FLAG(std::string, only, "", "measure the settings whose names hold this");

namespace lowkey {
namespace {

constexpr size_t kOtherBytes = size_t{128} << 20;

struct Setting {
  std::string name;
  AttentionOptions options;
};

AttentionOptions Atp(AtpBasis basis, int32_t rank, int32_t block_tokens, int32_t refine_tokens) {
  AttentionOptions o;
  o.mechanism = Mechanism::kAtp;
  o.atp.basis = basis, o.atp.rank = RankFixed{rank}, o.atp.block_tokens = block_tokens;
  o.atp.refine_tokens = refine_tokens;
  return o;
}

AttentionOptions Standard(CacheStorage storage) {
  AttentionOptions o;
  o.standard.storage = storage;
  return o;
}

AttentionOptions InInt8(AttentionOptions o) {
  o.atp.basis_storage = o.atp.principal_storage = AtpStorage::kInt8;
  return o;
}

// Returns what the aim stands for with a calibrated model.
AttentionOptions Calibrated(AtpAim aim) {
  AttentionOptions o;
  o.mechanism = Mechanism::kAtp;
  o.atp.aim = aim;
  o.atp = ResolveAim(o.atp, true);
  return o;
}

std::vector<Setting> Settings() {
  const AttentionOptions kv = Atp(AtpBasis::kKv, 8, 128, 64);
  const AttentionOptions layer = Atp(AtpBasis::kLayer, 32, 512, 64);
  const AttentionOptions plain = Atp(AtpBasis::kLayer, 64, 512, 0);
  return {{"standard", {}},
          {"standard, int8 cache", Standard(CacheStorage::kInt8)},
          {"standard, int4 cache", Standard(CacheStorage::kInt4)},
          {"standard, int3 cache", Standard(CacheStorage::kInt3)},
          {"standard, int2 cache", Standard(CacheStorage::kInt2)},
          {"atp kv r 8 block 128 refine 64", kv},
          {"atp kv r 8, int8, block 128 refine 64", InInt8(kv)},
          {"atp calibrated, near-exact", Calibrated(AtpAim::kNearExact)},
          {"atp calibrated, fast", Calibrated(AtpAim::kFast)},
          {"atp calibrated, small", Calibrated(AtpAim::kSmall)},
          {"atp layer r 32 block 512 refine 64", layer},
          {"atp layer r 32, int8, block 512 refine 64", InInt8(layer)},
          {"atp layer r 64 block 512", plain},
          {"atp layer r 64, int8, block 512", InInt8(plain)}};
}

AttentionGeometry Geometry() {
  AttentionGeometry g;
  g.n_layers = absl::GetFlag(FLAGS_layers);
  g.n_heads = absl::GetFlag(FLAGS_heads);
  g.n_kv_heads = absl::GetFlag(FLAGS_kv_heads);
  g.head_dim = absl::GetFlag(FLAGS_head_dim);
  g.cache_type = StorageType::kBFloat16;
  return g;
}

// The codes of random keys, values and queries.
PrincipalCodes RandomCodes(const AttentionGeometry& g, ThreadPool& pool) {
  constexpr int64_t kRows = 512;
  std::mt19937 rng(4);
  std::vector<float> rows(kRows * g.head_dim);
  for (float& x : rows) x = static_cast<float>(rng() % 2001) * 1e-3f - 1.0f;
  Moments moments(g.head_dim);
  MomentsScratch scratch;
  moments.Add(rows.data(), kRows, pool, scratch);
  PrincipalCodes codes;
  const auto n = static_cast<size_t>(g.n_layers * g.n_kv_heads);
  codes.heads.n_layers = g.n_layers, codes.heads.n_kv_heads = g.n_kv_heads;
  for (int64_t i = 0; i < g.key_dim() / 2; ++i) {
    const double turn = static_cast<double>(2 * i) / static_cast<double>(g.key_dim());
    codes.heads.inverse_frequencies.push_back(std::pow(1e5, -turn));
  }
  codes.heads.keys.assign(n, *FindPrincipalCode({1, g.head_dim, 0}, moments, {&moments, 1}));
  codes.heads.values.assign(n, *FindPrincipalCode({1, 0, g.head_dim}, moments, {}));
  return codes;
}

struct Bench {
  AttentionGeometry geometry = Geometry();
  PrincipalCodes codes;
  int64_t depth = absl::GetFlag(FLAGS_depth);
  ThreadPool* pool = nullptr;
  Cache* cache = nullptr;
};

int64_t RowSize(const AttentionGeometry& g) { return (g.n_heads + 2 * g.n_kv_heads) * g.head_dim; }

LayerRows RowsAt(const AttentionGeometry& g, int64_t layer, const std::vector<float>& rows,
                 std::vector<float>& out) {
  const float* q = rows.data();
  const float* k = q + g.n_heads * g.head_dim;
  return {layer,      nullptr,    0,
          q,          k,          k + g.n_kv_heads * g.head_dim,
          RowSize(g), out.data(), g.n_heads * g.head_dim};
}

// Quantizes the closed pages where the options ask for it.
absl::Status Close(const Bench& b, SequenceCache& sequence) {
  const AttentionGeometry& g = b.geometry;
  const CacheStorage storage = sequence.options.standard.storage;
  if (storage == CacheStorage::kDtype) return absl::OkStatus();
  for (int64_t page = 0; page < b.depth / kPageTokens; ++page) {
    LK_ASSIGN_OR_RETURN(auto slab, b.cache->AllocateSlab(QuantizedPageBytes(g, storage)));
    b.pool->ParallelFor(g.n_layers * g.n_kv_heads, [&](int64_t i, int) {
      const int64_t layer = i / g.n_kv_heads, head = i % g.n_kv_heads;
      QuantizeTile(g, storage, TileOf(g, sequence.pages[page], layer, head), layer, head, *slab);
    });
    sequence.state.As<StandardState>().closed_pages.push_back(std::move(slab));
    sequence.pages[page] = {};
  }
  return absl::OkStatus();
}

// A sequence of `depth` random tokens, cached without attending to them.
absl::Status Fill(const Bench& b, const AttentionOptions& options, SequenceCache& sequence) {
  const AttentionGeometry& g = b.geometry;
  const AtpOptions& o = options.atp;
  sequence.options = options;
  sequence.n_tokens = sequence.n_prompt_tokens = b.depth;
  std::vector<float> rows(b.depth * RowSize(g)), out;
  std::mt19937 rng(1);
  for (float& x : rows) x = static_cast<float>(rng() % 2001) * 1e-3f - 1.0f;
  const Segment all{&sequence, 0, b.depth, 0};
  LK_RETURN_IF_ERROR(TakePages(all, *b.cache));
  for (int64_t layer = 0; layer < g.n_layers; ++layer) {
    WriteKv(g, {&all, 1}, RowsAt(g, layer, rows, out), *b.pool);
  }
  if (options.mechanism == Mechanism::kStandard) return Close(b, sequence);
  std::vector<CompressWorkspace> workspaces(b.pool->n_threads());
  std::optional<TokenIndex> index;
  if (o.basis == AtpBasis::kCalibrated) index.emplace(g, b.codes.heads);
  const int64_t block_pages = o.block_tokens / kPageTokens;
  for (int64_t n = 0; n < b.depth / o.block_tokens; ++n) {
    auto block = std::make_shared<PrincipalBlock>();
    block->shape = ShapeOf(g, o);
    block->n_sinks = n == 0 ? o.sinks : 0;
    LK_RETURN_IF_ERROR(block->Allocate(g, n, *b.cache));
    const int64_t n_bases = block->shape.n_bases(g);
    b.pool->ParallelFor(block->shape.n_parts(g), [&](int64_t part, int thread) {
      const BlockTokens tokens{
          absl::MakeConstSpan(sequence.pages).subspan(n * block_pages, block_pages),
          {},
          n * block_pages};
      const CompressPart compressed{part / n_bases, part % n_bases};
      if (block->shape.is_calibrated()) {
        IndexLayer(g, *index, tokens, compressed, workspaces[thread], *block);
      } else {
        CompressLayer(g, o, tokens, compressed, workspaces[thread], *block);
      }
    });
    sequence.state.As<AtpState>().blocks.push_back(std::move(block));
  }
  return absl::OkStatus();
}

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// CPU time of all threads: on a machine that others use it says more than the time that passes.
double CpuSeconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Seconds of one step's attention over all layers.
absl::StatusOr<double> TimeStep(const Bench& b, AttentionMechanism& mechanism,
                                SequenceCache& sequence) {
  const AttentionGeometry& g = b.geometry;
  std::vector<float> rows(RowSize(g)), out(g.n_heads * g.head_dim);
  std::mt19937 rng(2);
  for (float& x : rows) x = static_cast<float>(rng() % 2001) * 2e-3f - 2.0f;
  const Segment segment{&sequence, sequence.n_tokens, 1, 0};
  const absl::Time start = absl::Now();
  LK_RETURN_IF_ERROR(mechanism.Plan({&segment, 1}));
  for (int64_t layer = 0; layer < g.n_layers; ++layer) {
    mechanism.Attend(RowsAt(g, layer, rows, out));
  }
  mechanism.Advance(sequence, 1);
  return absl::ToDoubleSeconds(absl::Now() - start);
}

// Bytes of the cache that a step reads.
double ReadBytes(const Bench& b, const SequenceCache& sequence) {
  const AttentionGeometry& g = b.geometry;
  double bytes = 0;
  for (const PageHandle& page : sequence.pages) {
    if (page) bytes += static_cast<double>(PageBytes(g));
  }
  if (sequence.options.mechanism == Mechanism::kStandard) {
    sequence.state.VisitSlabs(
        [&](const Slab& page) { bytes += static_cast<double>(page.size_bytes()); });
    return bytes;
  }
  const int64_t window = sequence.options.atp.window_blocks;
  const auto& blocks = sequence.state.As<AtpState>().blocks;
  for (int64_t i = 0; i + window < static_cast<int64_t>(blocks.size()); ++i) {
    PrincipalShape shape = blocks[i]->shape;
    shape.keeps_tokens = false;
    bytes += static_cast<double>(shape.SlabBytes(g));
  }
  const PrincipalShape shape = ShapeOf(g, sequence.options.atp);
  return bytes + static_cast<double>(sequence.options.atp.refine_tokens * g.n_layers *
                                     g.n_kv_heads * shape.KeptTokenBytes(g));
}

// Seconds that a step spends choosing tokens, on one thread.
double SelectionSeconds(const Bench& b, const AtpOptions& o) {
  if (o.refine_tokens == 0) return 0;
  std::vector<float> weights(b.depth);
  std::mt19937 rng(3);
  for (float& w : weights) w = static_cast<float>(rng()) * 0x1p-32f;
  TopTokens top;
  const int64_t n = b.geometry.n_layers * b.geometry.n_kv_heads;
  const absl::Time start = absl::Now();
  for (int64_t i = 0; i < n; ++i) top.Select(weights, o.refine_tokens);
  return absl::ToDoubleSeconds(absl::Now() - start);
}

absl::Status Measure(const Setting& setting, const MachineLimits& limits, ThreadPool& pool,
                     double* standard) {
  Bench b;
  const int64_t n_pages = b.depth / kPageTokens + 2;
  const PrincipalShape shape = ShapeOf(b.geometry, setting.options.atp);
  const int64_t budget =
      2 * n_pages * PageBytes(b.geometry) +
      (b.depth / setting.options.atp.block_tokens + 1) * shape.SlabBytes(b.geometry);
  LK_ASSIGN_OR_RETURN(auto cache, Cache::Create(budget, PageBytes(b.geometry)));
  b.pool = &pool, b.cache = cache.get();
  b.codes = RandomCodes(b.geometry, pool);
  AttentionContext context{b.geometry, b.cache, b.pool};
  if (setting.options.mechanism == Mechanism::kAtp) context.codes = &b.codes;
  const auto mechanism = MakeMechanism(setting.options.mechanism, context);
  SequenceCache sequence;
  LK_RETURN_IF_ERROR(Fill(b, setting.options, sequence));
  LK_RETURN_IF_ERROR(TimeStep(b, *mechanism, sequence).status());
  LK_ASSIGN_OR_RETURN(Buffer other, Buffer::Allocate(kOtherBytes));
  std::fill_n(other.as<float>(), kOtherBytes / sizeof(float), 1.0f);
  std::vector<double> seconds, cpu_seconds;
  for (int i = 0; i < absl::GetFlag(FLAGS_runs); ++i) {
    // As a model reads its weights, so that a step finds little of its cache in the processor.
    ReadThrough(other, pool);
    const double before = CpuSeconds();
    LK_ASSIGN_OR_RETURN(seconds.emplace_back(), TimeStep(b, *mechanism, sequence));
    cpu_seconds.push_back(CpuSeconds() - before);
  }
  const double median = Median(seconds), bytes = ReadBytes(b, sequence);
  if (*standard == 0) *standard = median;
  std::printf("%-42s %8.2f %8.2f %8.2f %10.1f %12.1f%% %11.2f\n", setting.name.c_str(),
              median * 1e3, Median(cpu_seconds) * 1e3, *standard / median, bytes * 1e-6,
              100 * bytes / median / limits.read_bytes_per_second,
              SelectionSeconds(b, setting.options.atp) * 1e3 / pool.n_threads());
  return absl::OkStatus();
}

absl::Status Main() {
  const int n_cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ThreadPool pool(absl::GetFlag(FLAGS_threads) > 0 ? absl::GetFlag(FLAGS_threads) : n_cores);
  LK_ASSIGN_OR_RETURN(const MachineLimits limits, MeasureMachine(pool.n_threads()));
  std::printf("%s, %d threads, read %.1f GB/s; %d layers, %d / %d heads of %d, depth %d\n",
              std::string(Kernels().name).c_str(), pool.n_threads(),
              limits.read_bytes_per_second * 1e-9, absl::GetFlag(FLAGS_layers),
              absl::GetFlag(FLAGS_heads), absl::GetFlag(FLAGS_kv_heads),
              absl::GetFlag(FLAGS_head_dim), absl::GetFlag(FLAGS_depth));
  std::printf("%-42s %8s %8s %8s %10s %13s %11s\n", "", "ms", "CPU ms", "faster", "MB read",
              "of bandwidth", "choosing ms");
  double standard = 0;
  for (const Setting& s : Settings()) {
    if (s.name.find(absl::GetFlag(FLAGS_only)) == std::string::npos) continue;
    LK_RETURN_IF_ERROR(Measure(s, limits, pool, &standard));
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("time of attention when one sequence decodes at depth");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::Main();
  if (!status.ok()) std::fprintf(stderr, "attention_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
