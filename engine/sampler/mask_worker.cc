#include "engine/sampler/mask_worker.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lowkey {

MaskWorker::~MaskWorker() {
  if (!thread_.joinable()) return;
  {
    absl::MutexLock lock(&mutex_);
    LK_CHECK(queue_.empty() && running_ == nullptr);
    is_stopping_ = true;
    added_.Signal();
  }
  thread_.join();
}

void MaskWorker::Add(Task* task) {
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  absl::MutexLock lock(&mutex_);
  queue_.push_back(task);
  added_.Signal();
}

void MaskWorker::Join(Task* task) {
  absl::MutexLock lock(&mutex_);
  const auto queued = std::find(queue_.begin(), queue_.end(), task);
  if (queued != queue_.end()) queue_.erase(queued);
  while (running_ == task) ended_.Wait(&mutex_);
}

void MaskWorker::Work() {
  mutex_.Lock();
  while (true) {
    while (queue_.empty() && !is_stopping_) added_.Wait(&mutex_);
    if (queue_.empty()) break;
    Task* const task = queue_.front();
    running_ = task;
    queue_.pop_front();
    mutex_.Unlock();
    try {
      task->Run();
    } catch (...) {  // Task::Run says why
    }
    mutex_.Lock();
    running_ = nullptr;
    ended_.SignalAll();
  }
  mutex_.Unlock();
}

}  // namespace lowkey
