#include "server/net/deliveries.h"

#include <algorithm>

#include "engine/base/contained.h"

namespace lowkey {

void Deliveries::Add(EventLoop& loop, std::function<void()> work) {
  if (!gathers_) return loop.Post(std::move(work));
  absl::MutexLock lock(&mutex_);
  const auto of_loop = [&loop](const Batch& batch) { return batch.loop == &loop; };
  auto batch = std::find_if(batches_.begin(), batches_.end(), of_loop);
  if (batch == batches_.end()) {
    batch = batches_.insert(batch, {&loop, std::make_shared<std::vector<std::function<void()>>>()});
  }
  batch->work->push_back(std::move(work));
}

void Deliveries::Flush() {
  std::vector<Batch> batches;
  {
    absl::MutexLock lock(&mutex_);
    batches.swap(batches_);
  }
  for (Batch& batch : batches) {
    RunInTheEnd([&batch] {
      batch.loop->Post([work = batch.work] {
        for (const std::function<void()>& piece : *work) RunContained(piece);
      });
    });
  }
}

}  // namespace lowkey
