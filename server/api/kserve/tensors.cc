#include "server/api/kserve/tensors.h"

#include <cstring>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using inference::InferTensorContents;

constexpr int kMaxTensors = 64;
constexpr int kMaxDims = 8;
constexpr size_t kLengthBytes = 4;  // before each element of a BYTES tensor

// A datatype, the bytes of an element (0: any number), and how many elements its field holds.
struct Datatype {
  std::string_view name;
  size_t n_bytes;
  int (*n_contents)(const InferTensorContents& contents);
};

constexpr Datatype kDatatypes[] = {
    {"BOOL", 1, [](const InferTensorContents& c) { return c.bool_contents_size(); }},
    {"INT32", 4, [](const InferTensorContents& c) { return c.int_contents_size(); }},
    {"INT64", 8, [](const InferTensorContents& c) { return c.int64_contents_size(); }},
    {"UINT32", 4, [](const InferTensorContents& c) { return c.uint_contents_size(); }},
    {"UINT64", 8, [](const InferTensorContents& c) { return c.uint64_contents_size(); }},
    {"FP32", 4, [](const InferTensorContents& c) { return c.fp32_contents_size(); }},
    {"FP64", 8, [](const InferTensorContents& c) { return c.fp64_contents_size(); }},
    {"BYTES", 0, [](const InferTensorContents& c) { return c.bytes_contents_size(); }},
};

const Datatype* FindDatatype(std::string_view name) {
  for (const Datatype& datatype : kDatatypes) {
    if (datatype.name == name) return &datatype;
  }
  return nullptr;
}

// The elements of all fields.
int64_t CountContents(const InferTensorContents& contents) {
  int64_t n = 0;
  for (const Datatype& datatype : kDatatypes) n += datatype.n_contents(contents);
  return n;
}

template <typename T>
T ElementAt(std::string_view raw, size_t i) {
  T value;
  std::memcpy(&value, raw.data() + i * sizeof(T), sizeof(T));
  return value;
}

uint32_t LengthAt(std::string_view raw) {
  const auto byte = [raw](size_t i) { return uint32_t{static_cast<uint8_t>(raw[i])} << (8 * i); };
  return byte(0) | byte(1) | byte(2) | byte(3);
}

std::string ShapeText(const google::protobuf::RepeatedField<int64_t>& shape) {
  const auto end = shape.begin() + std::min(shape.size(), kMaxDims);
  return absl::StrCat("[", absl::StrJoin(shape.begin(), end, ", "),
                      end == shape.end() ? "]" : ", ...]");
}

// Names come from strangers.
std::string ShortName(const std::string& name) {
  return name.size() <= 64 ? name : name.substr(0, 64) + "...";
}

template <typename T>
void AddTensor(std::string_view name, std::string_view datatype, absl::Span<const T> elements,
               inference::ModelInferResponse& response) {
  auto& output = *response.add_outputs();
  output.set_name(std::string(name));
  output.set_datatype(std::string(datatype));
  output.add_shape(static_cast<int64_t>(elements.size()));
  // Little-endian, as the machines are that the server runs on.
  response.add_raw_output_contents(reinterpret_cast<const char*>(elements.data()),
                                   elements.size() * sizeof(T));
}

}  // namespace

absl::Status InferTensor::Error(std::string_view actual, std::string_view expected) const {
  return absl::InvalidArgumentError(absl::StrCat(ShortName(name()), ": ", std::string(actual),
                                                 ", expected ", std::string(expected)));
}

absl::Status InferTensor::CheckShape() {
  if (tensor_.shape_size() < 1 || tensor_.shape_size() > kMaxDims) {
    return Error(absl::StrCat("shape of ", tensor_.shape_size(), " dimensions"),
                 absl::StrCat("1..", kMaxDims));
  }
  for (const int64_t dim : tensor_.shape()) {
    if (dim < 1 || n_elements_ > std::numeric_limits<int64_t>::max() / dim) {
      return Error(absl::StrCat("shape ", ShapeText(tensor_.shape())),
                   "dimensions of 1 or more, whose product is the number of elements");
    }
    n_elements_ *= dim;
  }
  return absl::OkStatus();
}

absl::Status InferTensor::CheckRaw() const {
  const auto n_bytes = static_cast<int64_t>(raw_->size());
  const auto element_bytes = static_cast<int64_t>(FindDatatype(tensor_.datatype())->n_bytes);
  if (element_bytes > 0) {
    if (n_bytes % element_bytes == 0 && n_bytes / element_bytes == n_elements_) {
      return absl::OkStatus();
    }
    return Error(
        absl::StrCat(n_bytes, " bytes of raw contents"),
        absl::StrCat(n_elements_, " elements of ", element_bytes, " bytes, as datatype ",
                     tensor_.datatype(), " and shape ", ShapeText(tensor_.shape()), " say"));
  }
  int64_t n_found = 0;
  std::string_view rest = *raw_;
  while (rest.size() >= kLengthBytes && rest.size() - kLengthBytes >= LengthAt(rest)) {
    rest.remove_prefix(kLengthBytes + LengthAt(rest));
    ++n_found;
  }
  if (!rest.empty()) {
    return Error(absl::StrCat("raw contents that are cut off in element ", n_found),
                 "4 bytes of length and that many bytes for each element");
  }
  if (n_found == n_elements_) return absl::OkStatus();
  return Error(absl::StrCat(n_found, " elements"),
               absl::StrCat(n_elements_, ", as shape ", ShapeText(tensor_.shape()), " says"));
}

absl::Status InferTensor::CheckContents() const {
  const Datatype* datatype = FindDatatype(tensor_.datatype());
  if (datatype == nullptr) {
    std::string names;
    for (const Datatype& known : kDatatypes) absl::StrAppend(&names, " ", std::string(known.name));
    return Error(absl::StrCat("datatype \"", ShortName(tensor_.datatype()), "\""),
                 absl::StrCat("one of", names));
  }
  const int64_t n_contents = CountContents(tensor_.contents());
  if (raw_ != nullptr) {
    if (n_contents == 0) return CheckRaw();
    return Error("contents beside raw_input_contents", "one of them");
  }
  const int64_t n_own = datatype->n_contents(tensor_.contents());
  if (n_own != n_contents) {
    return Error(absl::StrCat("contents of another datatype than ", tensor_.datatype()),
                 "elements in the datatype's own field alone");
  }
  if (n_own == n_elements_) return absl::OkStatus();
  return Error(absl::StrCat(n_own, " elements"),
               absl::StrCat(n_elements_, ", as shape ", ShapeText(tensor_.shape()), " says"));
}

std::vector<std::string_view> InferTensor::Bytes() const {
  if (raw_ == nullptr) {
    const auto& texts = tensor_.contents().bytes_contents();
    return std::vector<std::string_view>(texts.begin(), texts.end());
  }
  std::vector<std::string_view> texts;
  for (std::string_view rest = *raw_; !rest.empty();) {
    texts.push_back(rest.substr(kLengthBytes, LengthAt(rest)));
    rest.remove_prefix(kLengthBytes + texts.back().size());
  }
  return texts;
}

absl::StatusOr<SettingValue> InferTensor::Scalar() const {
  if (n_elements_ != 1) {
    return Error(absl::StrCat("shape ", ShapeText(tensor_.shape())), "one element");
  }
  const std::string& type = tensor_.datatype();
  const InferTensorContents& contents = tensor_.contents();
  const bool is_raw = raw_ != nullptr;
  if (type == "BYTES") return std::string(Bytes()[0]);
  if (type == "INT32") {
    return int64_t{is_raw ? ElementAt<int32_t>(*raw_, 0) : contents.int_contents(0)};
  }
  if (type == "INT64") return is_raw ? ElementAt<int64_t>(*raw_, 0) : contents.int64_contents(0);
  if (type == "UINT32") {
    return uint64_t{is_raw ? ElementAt<uint32_t>(*raw_, 0) : contents.uint_contents(0)};
  }
  if (type == "UINT64") return is_raw ? ElementAt<uint64_t>(*raw_, 0) : contents.uint64_contents(0);
  if (type == "FP32") {
    return double{is_raw ? ElementAt<float>(*raw_, 0) : contents.fp32_contents(0)};
  }
  if (type == "FP64") return is_raw ? ElementAt<double>(*raw_, 0) : contents.fp64_contents(0);
  return is_raw ? ElementAt<uint8_t>(*raw_, 0) != 0 : contents.bool_contents(0);
}

absl::StatusOr<std::vector<std::string>> InferTensor::Texts(size_t n) const {
  if (tensor_.datatype() != "BYTES") return Error(tensor_.datatype(), "datatype BYTES");
  if (n_elements_ > static_cast<int64_t>(n)) {
    return Error(absl::StrCat(n_elements_, " elements"), absl::StrCat("at most ", n));
  }
  const std::vector<std::string_view> texts = Bytes();
  return std::vector<std::string>(texts.begin(), texts.end());
}

absl::StatusOr<std::vector<int32_t>> InferTensor::Ids() const {
  const bool is_wide = tensor_.datatype() == "INT64";
  if (!is_wide && tensor_.datatype() != "INT32") {
    return Error(tensor_.datatype(), "datatype INT32 or INT64");
  }
  if (tensor_.shape_size() > 2 || (tensor_.shape_size() == 2 && tensor_.shape(0) != 1)) {
    return Error(absl::StrCat("shape ", ShapeText(tensor_.shape())), "[n] or [1, n]");
  }
  std::vector<int32_t> ids;
  ids.reserve(static_cast<size_t>(n_elements_));
  const InferTensorContents& contents = tensor_.contents();
  for (int i = 0; i < n_elements_; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t id =
        is_wide ? (raw_ != nullptr ? ElementAt<int64_t>(*raw_, at) : contents.int64_contents(i))
                : (raw_ != nullptr ? ElementAt<int32_t>(*raw_, at) : contents.int_contents(i));
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) {
      return Error(absl::StrCat("element ", i, " is ", id), "token ids from 0");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::StatusOr<std::vector<InferTensor>> ReadTensors(const inference::ModelInferRequest& request) {
  const int n_raw = request.raw_input_contents_size();
  if (request.inputs_size() > kMaxTensors) {
    return absl::InvalidArgumentError(absl::StrCat("inputs: ", request.inputs_size(),
                                                   " tensors, expected at most ", kMaxTensors));
  }
  if (n_raw != 0 && n_raw != request.inputs_size()) {
    return absl::InvalidArgumentError(absl::StrCat("raw_input_contents: ", n_raw,
                                                   " entries, expected none, or one for each of ",
                                                   request.inputs_size(), " inputs"));
  }
  std::vector<InferTensor> tensors;
  std::set<std::string_view> names;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& input = request.inputs(i);
    InferTensor tensor(input, n_raw == 0 ? nullptr : &request.raw_input_contents(i));
    if (!names.insert(input.name()).second) return tensor.Error("a second tensor", "one");
    if (!input.parameters().empty()) {
      const std::string& key = input.parameters().begin()->first;
      if (key.starts_with("shared_memory")) {
        return absl::UnimplementedError(absl::StrCat(ShortName(input.name()),
                                                     ": shared memory is not supported, expected ",
                                                     "contents or raw_input_contents"));
      }
      return tensor.Error(absl::StrCat("parameter \"", ShortName(key), "\""), "no parameters");
    }
    LK_RETURN_IF_ERROR(tensor.CheckShape());
    LK_RETURN_IF_ERROR(tensor.CheckContents());
    tensors.push_back(tensor);
  }
  return tensors;
}

void AddTexts(std::string_view name, absl::Span<const std::string> texts,
              inference::ModelInferResponse& response) {
  auto& output = *response.add_outputs();
  output.set_name(std::string(name));
  output.set_datatype("BYTES");
  output.add_shape(static_cast<int64_t>(texts.size()));
  std::string& raw = *response.add_raw_output_contents();
  for (const std::string& text : texts) {
    const auto n = static_cast<uint32_t>(text.size());
    for (unsigned i = 0; i < kLengthBytes; ++i) raw.push_back(static_cast<char>(n >> (8 * i)));
    raw.append(text);
  }
}

void AddCounts(std::string_view name, absl::Span<const uint32_t> counts,
               inference::ModelInferResponse& response) {
  AddTensor(name, "UINT32", counts, response);
}

void AddFloats(std::string_view name, absl::Span<const float> numbers,
               inference::ModelInferResponse& response) {
  AddTensor(name, "FP32", numbers, response);
}

}  // namespace lowkey
