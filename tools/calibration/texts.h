#ifndef LOWKEY_TOOLS_CALIBRATION_TEXTS_H_
#define LOWKEY_TOOLS_CALIBRATION_TEXTS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/calibration/read_texts.h"
#include "server/config/flags.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/terminal.h"

namespace lowkey {

inline constexpr Flag kPieceFlag = {"piece", "N", "2048",
                                    "tokens that are read together; texts are cut into pieces"};

struct CalibrationTexts {
  std::vector<std::vector<int32_t>> pieces;  // token ids, each begins as a text does
  int64_t n_tokens = 0;
};

// Reads the texts that are named after the command, or the built-in sample, as the model's tokens
// in pieces of at most --piece. Warns on standard error when they are few; INVALID_ARGUMENT
// where there are none.
absl::StatusOr<CalibrationTexts> ReadCalibrationTexts(const FlagValues& flags,
                                                      const OpenedModel& model,
                                                      const Checkpoint& weights);

// Progress bars on standard error, one at a time: the next begins where the one before has ended.
class CalibrationBars {
 public:
  explicit CalibrationBars(std::string solved) : solved_(std::move(solved)) {}
  CalibrationProgress Callbacks();

 private:
  void Show(const std::string& name, const std::string& unit, int64_t done, int64_t all);

  const std::string solved_;  // what the texts are read for
  std::string name_;
  std::unique_ptr<ProgressBar> bar_;
};

}  // namespace lowkey

#endif  // LOWKEY_TOOLS_CALIBRATION_TEXTS_H_
