#ifndef LOWKEY_ENGINE_RUNTIME_ENGINE_H_
#define LOWKEY_ENGINE_RUNTIME_ENGINE_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/config/attention_options.h"
#include "engine/config/enum_names.h"
#include "engine/config/mechanism_costs.h"
#include "engine/config/model_config.h"
#include "engine/config/perplexity_ratios.h"
#include "engine/config/selection_rules.h"
#include "engine/sampler/mask_budget.h"
#include "engine/sampler/sampler.h"
#include "engine/sampler/token_constraint.h"

namespace lowkey {

class Device;
struct Checkpoint;
struct PrincipalCodes;

// DraftMode says how tokens are guessed that a step then verifies as further rows. Drafts change no
// output.
enum class DraftMode { kOff, kLookup };
template <>
inline constexpr EnumNames kEnumNames<DraftMode> = {"draft", {"off", "lookup"}};

// A generation (or scoring) request to one model, in token ids.
struct EngineRequest {
  std::vector<int32_t> prompt;  // 1 or more ids in [0, vocab_size)
  int32_t max_new_tokens = 16;  // >= 0; 0 only with prompt_logprobs
  int32_t n = 1;  // choices, 1..8; choice i draws from its own stream of `sampling.seed`
  SamplingOptions sampling;
  // Generation ends after one of these tokens, which is reported like any other.
  std::vector<int32_t> stop_tokens;
  // Set: reports log-probabilities of prompt tokens 1.., each with this many most likely
  // alternatives (0..20).
  std::optional<int32_t> prompt_logprobs;
  int32_t prompt_logprobs_from = 1;  // positions before it are not scored; >= 1
  AttentionOptions attention;
  // Set: Submit chooses attention.mechanism by these rules among what the model offers; the other
  // options of `attention` apply.
  std::optional<SelectionRules> selection;
  // Set: every choice gets only tokens that a constraint of this factory lets through. A token that
  // ends the text must be among stop_tokens. UNIMPLEMENTED on a device.
  std::shared_ptr<const TokenConstraintFactory> constraint;
  // kLookup: steps draft tokens by prompt lookup (docs/drafts.md) where the mechanism lets them and
  // the constraint forces none.
  DraftMode draft = DraftMode::kOff;
  absl::Time deadline = absl::InfiniteFuture();
  // The owner of the request. Tenants that wait share the work by their weights, and no cached
  // prefix passes from one to another. Empty: clients without credentials.
  std::string tenant;
  double tenant_weight = 1;  // > 0
  int32_t priority = 0;      // -100..100: a tenant's requests of higher priority go first
  // Lengths in tokens, each 1..prompt.size(), of prefixes that later prompts will share. Mechanisms
  // that cannot be continued from every page keep their state there too (rounded down to whole
  // pages).
  std::vector<int32_t> prefix_marks;
};

enum class FinishReason { kStopToken, kLength, kStoppedBySink, kCancelled, kDeadline, kError };

struct AttentionReport {
  Mechanism mechanism = Mechanism::kStandard;
  bool is_approximate = false;  // with the options that ran
  std::string label;            // AttentionLabel of what ran
  std::string reason;           // why the engine chose this mechanism; empty if the request did
  // Lengths at which the engine's choice would change.
  std::vector<Crossover> crossovers = {};
  // A preempted request drops the caches of choices that were done: what the fields below count at
  // the end leaves these choices out.
  int32_t rank = 0;  // atp: rank of a principal block; 0 for standard
  // atp: closed blocks held as principal keys at the end, over all choices.
  int32_t n_compressed_blocks = 0;
  // taylorshift: tokens that a state stands for at the end, in the longest choice.
  int64_t n_state_tokens = 0;
  // standard: prompt tokens that later rows read in a calibrated code (PrefixStorage).
  int64_t n_coded_tokens = 0;
  int64_t cache_bytes = 0;       // held at the end by all choices: pages, principal blocks, states
  int64_t peak_cache_bytes = 0;  // the most held at once
  int64_t standard_cache_bytes = 0;  // what mechanism standard would hold at the end
};

struct Timings {
  int64_t queue_us = 0;    // Submit to the first step that computes this request
  int64_t prefill_us = 0;  // that step to the first sampled token
  int64_t decode_us = 0;   // first token to the last
  int64_t ttft_us = 0;     // Submit to the first sampled token
};

// The log-probability of prompt token `position` (>= 1) given the tokens before it.
struct PromptLogprob {
  int32_t position = 0;
  TokenLogprob token;
  std::vector<TokenLogprob> top;
};

struct FinalEvent {
  absl::Status status;                       // an error only with kError, kCancelled, kDeadline
  std::vector<FinishReason> finish_reasons;  // one per choice
  std::vector<int32_t> n_generated;          // tokens per choice
  int32_t n_prompt_tokens = 0;
  int32_t n_cached_tokens = 0;  // prompt tokens found in the prefix cache
  // Tokens drafted, and those of them that became output, over all choices.
  int32_t n_drafted_tokens = 0, n_accepted_tokens = 0;
  uint64_t seed = 0;
  Timings timings;
  AttentionReport attention;
};

enum class SinkAnswer { kContinue, kPause, kStop, kCancel };

// Receives one request's results. Calls come from the engine's thread, one at a time, in order:
// OnPromptLogprobs (at most once, before any token), OnToken..., then exactly one OnDone, after
// which the sink is destroyed. Calls must not block and must not call the engine.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void OnPromptLogprobs(std::vector<PromptLogprob> logprobs) { (void)logprobs; }
  // Takes a token. kPause: the request keeps its cache and computes no further step until
  // Engine::Resume(id) is called; the tokens of a step that has already begun still follow. kStop
  // ends that choice with kStoppedBySink (the server matches stop strings, which are text). kCancel
  // ends the request at once, as Cancel does.
  virtual SinkAnswer OnToken(int32_t choice, const SampledToken& token) = 0;
  virtual void OnDone(const FinalEvent& event) = 0;
};

// Says where prefixes outlive the process (docs/prefix_files.md). Files change no output.
struct PrefixFileOptions {
  std::string folder;  // made where there is none; empty: prefixes are kept in memory alone
  int64_t max_bytes = int64_t{8} << 30;  // of all files together; > 0
  // Names the program that computes: another build may round otherwise, and has files of its own.
  std::string build;
  // Called by another thread when a file cannot be written, or is not as it was written: at most
  // once a minute. Null: none.
  std::function<void(const absl::Status&)> on_error = nullptr;
};

struct EngineOptions {
  enum class Dtype { kAuto, kFloat32, kBFloat16, kInt8, kFloat8 };
  // The device that computes and holds the cache, for this engine alone; nullptr: the host.
  std::shared_ptr<Device> device = nullptr;
  // Type of weights and cache. kAuto is bfloat16 unless the checkpoint is F32. kInt8 and, on a
  // device only, kFloat8 are types of weights, with a bfloat16 cache.
  Dtype dtype = Dtype::kAuto;
  int n_threads = 0;  // 0: one per core
  // 0: a quarter of the available memory, or nine tenths of what the device has left, but no more
  // than 64 full contexts need.
  int64_t cache_bytes = 0;
  int32_t max_batch_tokens = 512;  // rows in a step
  int32_t max_running_seqs = 64;   // sequences in a step
  // The longest time that a step should take while streams wait for their next token: prompts are
  // computed beside them in chunks that fit. > 0.
  absl::Duration step_target = absl::Milliseconds(100);
  int32_t max_queued_requests = 256;
  int64_t max_queued_prompt_tokens = int64_t{1} << 20;
  // The longest wait for a first step: a request that would probably wait longer is refused, and
  // one that has waited a fifth longer is given up. > 0.
  absl::Duration max_wait = absl::InfiniteDuration();
  // Says whether the cache keeps prefixes for prompts that begin alike. Never changes an output.
  bool keeps_prefixes = true;
  // Says where prefixes of standard attention are kept too. It is not used on a device, nor where
  // the cache keeps none.
  PrefixFileOptions prefix_files;
  // The model's calibration, for requests whose prefixes are coded (PrefixStorage); nullptr: such
  // requests are refused. Not used on a device.
  std::shared_ptr<const PrincipalCodes> codes = nullptr;
  // Says whether a device computes the next step while the tokens of the last one are read. Never
  // changes an output.
  bool runs_ahead = true;
  // Says whether steps draft the tokens of text that a request's constraint forces
  // (TokenConstraint::ForcedTokens), where the mechanism lets them. Never changes an output.
  bool jumps_ahead = true;
  // Says whether masks are computed on a thread beside those of the step whose tokens they are for.
  // Never changes an output. If unset, they are where n_threads is more than one.
  std::optional<bool> begins_masks = std::nullopt;
  // The work on masks (TokenConstraint::Prepare) that all requests together may add to a step: who
  // needs more sits steps out. Never changes an output. > 0.
  int64_t mask_work_per_step = MaskBudget::kWorkPerStep;
  int32_t context_tokens = 0;  // limit below the model's context; 0: none
  SelectionProfile profile;    // this machine's rates, for EngineRequest::selection
  // The engine's thread calls this after it has called sinks: once a step, however many tokens the
  // step has delivered. Must neither block nor throw. It may be called when no sink was. Null:
  // none.
  std::function<void()> after_delivery = nullptr;
};

struct EngineLimits {
  int32_t context_tokens = 0;  // prompt + max_new_tokens
  int32_t max_running_seqs = 0;
  int64_t cache_bytes = 0;
};

// A mechanism that the model has weights for.
struct MechanismInfo {
  Mechanism id = Mechanism::kStandard;
  std::optional<int64_t> max_tokens;           // the longest sequence, if shorter than the context
  double cache_bytes_per_token = 0;            // growth of a long sequence, with default options
  PerplexityRatios perplexity_ratios;          // to standard, as the model's bundle states them
  bool is_approximate = false;                 // approximates what the model's weights compute
  std::vector<MeasuredQuality> measured = {};  // with options, as the model's bundle states it
};

// Bounds of EngineStats::n_steps_by_rows, in rows of a step.
inline constexpr std::array<int32_t, 13> kStepRowBounds = {1,   8,    16,   32,   64,   128,  256,
                                                           512, 1024, 2048, 4096, 8192, 16384};

// The bound of the queue that a refused request would have passed.
enum class QueueBound { kRequests, kPromptTokens, kWait };
inline constexpr size_t kNumQueueBounds = 3;

struct EngineStats {
  int64_t n_running_requests = 0, n_waiting_requests = 0;
  int64_t n_finished_requests = 0, n_cancelled_requests = 0;
  int64_t n_prompt_tokens = 0, n_generated_tokens = 0;  // since start
  int64_t n_steps = 0;
  int64_t n_rows = 0;  // of all steps
  // Entry i counts the steps of at most kStepRowBounds[i] rows and more than the bound before; the
  // last entry counts the steps above all bounds.
  std::array<int64_t, kStepRowBounds.size() + 1> n_steps_by_rows = {};
  std::array<int64_t, kNumQueueBounds> n_refused_by_bound = {};  // indexed by QueueBound
  int64_t n_preemptions = 0;     // requests that gave their cache up and computed it again
  int64_t n_prefix_queries = 0;  // prompt tokens that were looked up in the prefix cache
  int64_t n_prefix_tokens = 0;   // prompt tokens found there
  // Tokens of prefixes that came into the prefix cache from files, the bytes that were read and
  // written, and the files that could not be written or were not as written.
  int64_t n_prefix_file_tokens = 0;
  int64_t n_prefix_file_bytes_read = 0, n_prefix_file_bytes_written = 0;
  int64_t n_prefix_file_errors = 0;
  // Tokens drafted, and those of them that became output.
  int64_t n_drafted_tokens = 0, n_accepted_tokens = 0;
  // Masks that tokens were drawn with, those of them that were computed while a step was, and the
  // time that the engine's thread spent on the others or waited.
  int64_t n_masks = 0, n_masks_ahead = 0;
  absl::Duration waited_for_masks;
  int64_t n_mask_waits = 0;  // steps that sequences sat out because their mask was not ready
  int64_t cache_bytes_total = 0;
  int64_t cache_bytes_used = 0;    // by requests
  int64_t cache_bytes_prefix = 0;  // held for later prompts, given up when requests need it
  int64_t weight_bytes = 0;
  int64_t page_tokens = 0;      // tokens of a sequence that a page of the cache holds
  bool keeps_prefixes = false;  // EngineOptions::keeps_prefixes
  std::string dtype;            // of weights: "float32", "bfloat16", "int8", "float8"
  // The instruction set of the host's kernels ("avx2", ...), or the name of the device.
  std::string processor;
  int32_t n_threads = 0;
};

using RequestId = uint64_t;

// Progress of a long operation: (bytes done, bytes in all).
using ProgressFn = absl::AnyInvocable<void(int64_t done_bytes, int64_t total_bytes)>;

// Continuous batching over one model. Thread-safe. A fault in one request (NaN logits, an exception
// in its attention or its sink) ends that request with INTERNAL and leaves the others, to the bit,
// as they would be without it. When a shared step throws, each of its requests is computed again
// alone, from nothing, until it has caught up; a request that throws then ends.
class Engine {
 public:
  virtual ~Engine() = default;  // cancels what still runs; every sink has had its OnDone

  // Checks the request and queues it. On an error the sink is destroyed without a call:
  //   INVALID_ARGUMENT    a field out of range (names it, the value, the range)
  //   FAILED_PRECONDITION the model cannot be attended to this way, selection found nothing, or
  //                       drafts are asked for on a device
  //   OUT_OF_RANGE        prompt + max_new_tokens over the context or over the whole cache
  //   RESOURCE_EXHAUSTED  the queue is full, or the wait would be too long, by the rates measured;
  //                       RetryAfterOf the status says when to come again
  //   DEADLINE_EXCEEDED   the deadline cannot be met, by the rates measured
  //   UNAVAILABLE         draining, or the device failed
  virtual absl::StatusOr<RequestId> Submit(EngineRequest request, std::unique_ptr<Sink> sink) = 0;

  // Ends the request within one step, with kCancelled; its cache is free before its OnDone. Unknown
  // or finished ids are ignored.
  virtual void Cancel(RequestId id) = 0;

  // Continues a request whose sink answered kPause. Unknown, finished and running ids are ignored.
  // A Resume that overtakes its pause is not lost.
  virtual void Resume(RequestId id) = 0;

  // Refuses new requests and waits for the admitted ones until `deadline`; true when all have
  // finished.
  virtual bool Drain(absl::Time deadline) = 0;

  // Ends every admitted request within one step, as Cancel does but with `status`.
  virtual void EndAll(const absl::Status& status) = 0;

  virtual EngineStats Stats() const = 0;

  // Replaces the rates by which requests that come later are given a mechanism (selection).
  virtual void SetProfile(SelectionProfile profile) = 0;
  // Returns what selection's candidates cost by length, by the rates of now.
  virtual CostTable Costs(const CostQuery& query) const = 0;
  // Returns the options that a request with these runs with: what presets among them stand for on
  // this model.
  virtual AttentionOptions Resolve(const AttentionOptions& options) const = 0;
  // Returns what a sequence of each length would take. FAILED_PRECONDITION when the model cannot be
  // attended to this way.
  virtual absl::StatusOr<std::vector<CacheBytes>> BytesByLength(
      const AttentionOptions& options, absl::Span<const int64_t> lengths) const = 0;
  // OK, or UNAVAILABLE for good once the device failed: all requests have ended, new ones are
  // refused.
  virtual absl::Status Health() const = 0;
  virtual const ModelConfig& config() const = 0;
  virtual EngineLimits limits() const = 0;
  // The mechanisms that the model has weights for, standard first.
  virtual std::vector<MechanismInfo> mechanisms() const = 0;
};

// Loads the checkpoint's weights and starts the engine's thread. INVALID_ARGUMENT for a dtype that
// the place does not compute with, FAILED_PRECONDITION for a calibration of a model of another
// shape or a folder of prefix files that cannot be used,
// RESOURCE_EXHAUSTED when memory cannot be had.
absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(std::shared_ptr<const Checkpoint> checkpoint,
                                                     const EngineOptions& options,
                                                     ProgressFn progress);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_ENGINE_H_
