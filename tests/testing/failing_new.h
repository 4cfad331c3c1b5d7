#ifndef LOWKEY_TESTS_TESTING_FAILING_NEW_H_
#define LOWKEY_TESTS_TESTING_FAILING_NEW_H_

#include <cstdint>

namespace lowkey {

// A program that links this can make operator new fail. Allocations are counted over all threads
// but those that are exempt.

// Makes the n-th allocation from now on fail, the first one being 1; 0: none.
void FailAllocation(int64_t n);

// Returns the allocations since FailAllocation.
int64_t NumAllocations();

// Exempts the calling thread, or ends its exemption, for as long as this object lives.
class Exemption {
 public:
  explicit Exemption(bool is_exempt = true);
  ~Exemption();
  Exemption(const Exemption&) = delete;
  Exemption& operator=(const Exemption&) = delete;

 private:
  const bool before_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_FAILING_NEW_H_
