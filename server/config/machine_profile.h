#ifndef LOWKEY_SERVER_CONFIG_MACHINE_PROFILE_H_
#define LOWKEY_SERVER_CONFIG_MACHINE_PROFILE_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"

namespace lowkey {

// Returns the file that keeps this machine's rates for a model: profile-<hash>.json, named after
// the processor, the engine's options and the model's shape and mechanisms, in
// $XDG_CACHE_HOME/lowkey, else ~/.cache/lowkey. Empty where neither variable is set.
std::string ProfileCachePath(const Checkpoint& checkpoint, const EngineOptions& options);

// The rates of this machine for a model that offers a choice of mechanisms: the cached ones, or
// else measured on a thread of its own, in seconds, and then cached. A file that cannot be read is
// measured again; one that cannot be written changes nothing.
class MachineProfile {
 public:
  // Hands the profile to `use`, at once or from the thread. A model without a choice has none, and
  // neither has one on a device.
  MachineProfile(std::shared_ptr<const Checkpoint> checkpoint, const EngineOptions& options,
                 std::function<void(SelectionProfile)> use);
  // Waits for a measurement that has begun.
  ~MachineProfile();
  MachineProfile(const MachineProfile&) = delete;
  MachineProfile& operator=(const MachineProfile&) = delete;

 private:
  std::thread thread_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_MACHINE_PROFILE_H_
