#ifndef LOWKEY_ENGINE_CONFIG_MECHANISM_COSTS_H_
#define LOWKEY_ENGINE_CONFIG_MECHANISM_COSTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/attention_options.h"
#include "engine/config/selection_rules.h"

namespace lowkey {

struct CostQuery {
  std::vector<int64_t> lengths = {};  // of prompts, in tokens, ascending, each >= 1
  int64_t n_new_tokens = 1;           // that a request generates after its prompt, >= 1
  AttentionOptions base = {};         // the options of mechanisms that the query asks about
};

// Holds what a sequence of some length takes of the cache.
struct CacheBytes {
  int64_t held = 0;
  int64_t read = 0;  // by its last token, at most
};

// The predicted cost at one length. Seconds are those of attention and projections.
struct CostPoint {
  int64_t n_tokens = 0;        // of the prompt
  double prefill_seconds = 0;  // to compute the prompt
  double decode_seconds = 0;   // to compute one token after it
  double request_seconds = 0;  // to compute the prompt and the new tokens
  int64_t cache_bytes = 0;     // held after prompt and new tokens
};

struct MechanismCosts {
  AttentionOptions options = {};
  bool is_approximate = false;
  std::vector<CostPoint> points;  // by length, as far as the mechanism and the context go
};

// The mechanisms that selection takes by these rules as prompts grow.
struct SelectionByLength {
  SelectionRules rules = {};
  std::optional<Mechanism> first;     // for the shortest prompts; nullopt: no mechanism is allowed
  std::vector<Crossover> crossovers;  // in ascending order
};

struct CostTable {
  std::string profile;  // SelectionProfile::name; empty: no rates were measured
  std::vector<MechanismCosts> mechanisms;
  std::vector<SelectionByLength> selections;  // each objective, without and with approximation
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CONFIG_MECHANISM_COSTS_H_
