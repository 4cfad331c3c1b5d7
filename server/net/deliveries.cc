#include "server/net/deliveries.h"

#include <algorithm>

namespace lowkey {

void Deliveries::Add(EventLoop& loop, std::function<void()> work) {
  if (!gathers_) return loop.Post(std::move(work));
  absl::MutexLock lock(&mutex_);
  const auto of_loop = [&loop](const Batch& batch) { return batch.loop == &loop; };
  auto batch = std::find_if(batches_.begin(), batches_.end(), of_loop);
  if (batch == batches_.end()) batch = batches_.insert(batch, Batch{&loop, {}});
  batch->work.push_back(std::move(work));
}

void Deliveries::Flush() {
  std::vector<Batch> batches;
  {
    absl::MutexLock lock(&mutex_);
    batches.swap(batches_);
  }
  for (Batch& batch : batches) {
    batch.loop->Post([work = std::move(batch.work)] {
      for (const std::function<void()>& piece : work) piece();
    });
  }
}

}  // namespace lowkey
