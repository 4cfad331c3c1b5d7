#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_WATCHED_ATTENTION_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_WATCHED_ATTENTION_H_

#include <functional>
#include <memory>
#include <utility>

#include "engine/attention/place/forwarded_attention.h"

namespace lowkey {

// Stands before a mechanism and shows every step's rows to `watch`.
class WatchedAttention : public ForwardedAttention {
 public:
  using Watch = std::function<void(const LayerRows&, absl::Span<const Segment>)>;
  WatchedAttention(std::unique_ptr<AttentionMechanism> real, Watch watch)
      : ForwardedAttention(std::move(real)), watch_(std::move(watch)) {}

  absl::Status Plan(absl::Span<const Segment> segments) override {
    segments_ = segments;
    return real().Plan(segments);
  }
  void Attend(const LayerRows& rows) override {
    watch_(rows, segments_);
    real().Attend(rows);
  }

 private:
  const Watch watch_;
  absl::Span<const Segment> segments_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_WATCHED_ATTENTION_H_
