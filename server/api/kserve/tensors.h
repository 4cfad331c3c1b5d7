#ifndef LOWKEY_SERVER_API_KSERVE_TENSORS_H_
#define LOWKEY_SERVER_API_KSERVE_TENSORS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "inference/grpc_service.pb.h"
#include "server/api/kserve/settings.h"

namespace lowkey {

// An input of a request whose elements are as many as its shape says. It refers to the request.
class InferTensor {
 public:
  const std::string& name() const { return tensor_.name(); }
  int64_t n_elements() const { return n_elements_; }

  // Return what the tensor holds. INVALID_ARGUMENT, naming tensor, value and expectation: another
  // number of elements, or another datatype.
  absl::StatusOr<SettingValue> Scalar() const;                     // one element of any datatype
  absl::StatusOr<std::vector<std::string>> Texts(size_t n) const;  // BYTES, 1 to n elements
  absl::StatusOr<std::vector<int32_t>> Ids() const;                // INT32 or INT64

  absl::Status Error(std::string_view actual, std::string_view expected) const;

 private:
  friend absl::StatusOr<std::vector<InferTensor>> ReadTensors(const inference::ModelInferRequest&);

  InferTensor(const inference::ModelInferRequest::InferInputTensor& tensor, const std::string* raw)
      : tensor_(tensor), raw_(raw) {}

  absl::Status CheckShape();
  absl::Status CheckContents() const;
  absl::Status CheckRaw() const;
  // The elements of a BYTES tensor.
  std::vector<std::string_view> Bytes() const;

  const inference::ModelInferRequest::InferInputTensor& tensor_;
  const std::string* const raw_;  // null: the elements are in tensor_.contents()
  int64_t n_elements_ = 1;
};

// Returns the request's inputs. INVALID_ARGUMENT: two of one name, a shape whose product is no
// number of elements, an unknown datatype, elements that are not as many as the shape says or in
// another field than the datatype's, raw_input_contents beside contents or of another number than
// the inputs. UNIMPLEMENTED: elements in shared memory.
absl::StatusOr<std::vector<InferTensor>> ReadTensors(const inference::ModelInferRequest& request);

// Append an output and its raw contents to an answer.
void AddTexts(std::string_view name, absl::Span<const std::string> texts,
              inference::ModelInferResponse& response);
void AddCounts(std::string_view name, absl::Span<const uint32_t> counts,
               inference::ModelInferResponse& response);
void AddFloats(std::string_view name, absl::Span<const float> numbers,
               inference::ModelInferResponse& response);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_TENSORS_H_
