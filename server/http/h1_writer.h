#ifndef LOWKEY_SERVER_HTTP_H1_WRITER_H_
#define LOWKEY_SERVER_HTTP_H1_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "server/http/byte_budget.h"
#include "server/http/exchange.h"

namespace lowkey {

// Returns an answer's head: status line, Date, `fields` without those that frame a body or govern
// the connection, then `own_fields`, which are whole lines.
std::string Http1AnswerHead(int status, const HttpFields& fields, std::string_view date,
                            std::string_view own_fields);

// The bytes of a connection's answers that were not handed to the transport. They count against
// the connection's limit and against what all connections share.
class AnswerBuffer {
 public:
  // `budget` must outlive the buffer.
  AnswerBuffer(size_t max_bytes, ByteBudget& budget) : max_bytes_(max_bytes), budget_(budget) {}
  AnswerBuffer(const AnswerBuffer&) = delete;
  AnswerBuffer& operator=(const AnswerBuffer&) = delete;
  ~AnswerBuffer() { Clear(); }

  // False, and nothing is appended, if a limit would be passed.
  bool Append(std::initializer_list<std::string_view> pieces);
  // Moves the first bytes to `out`, as many as there are up to n_bytes.
  void Take(size_t n_bytes, std::string& out);
  void Clear();

  size_t size() const { return bytes_.size() - begin_; }
  bool empty() const { return size() == 0; }

 private:
  const size_t max_bytes_;
  ByteBudget& budget_;
  std::string bytes_;
  size_t begin_ = 0;  // of bytes_ that were not taken
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_H1_WRITER_H_
