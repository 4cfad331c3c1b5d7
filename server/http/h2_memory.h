#ifndef LOWKEY_SERVER_HTTP_H2_MEMORY_H_
#define LOWKEY_SERVER_HTTP_H2_MEMORY_H_

#include <nghttp2/nghttp2.h>

#include <cstddef>

namespace lowkey {

// Gives nghttp2 the memory that it takes when a session begins, from a mapping of its own of which
// an idle session touches one page. Of these 25 KiB it writes to its state and to the first bytes
// of a frame buffer, which stand in front here; its tables are behind them. Elsewhere they would
// lie between those, and each idle connection would hold four pages. What nghttp2 takes later comes
// from the heap, as does what finds no room.
class H2Memory {
 public:
  H2Memory();  // throws std::bad_alloc
  ~H2Memory();
  H2Memory(const H2Memory&) = delete;
  H2Memory& operator=(const H2Memory&) = delete;

  // Returns the allocator for nghttp2_session_server_new3. It must not outlive this object, which
  // stays where it is.
  nghttp2_mem Allocator();
  // From here on memory comes from the heap.
  void EndOfStart() { is_starting_ = false; }

  bool Holds(const void* block) const;

 private:
  static void* Allocate(size_t n_bytes, void* self);
  static void Free(void* block, void* self);
  static void* AllocateZeros(size_t n, size_t n_bytes, void* self);
  static void* Reallocate(void* block, size_t n_bytes, void* self);

  // Returns zeros of the mapping, or null.
  void* Take(size_t n_bytes);

  char* const begin_;
  char* front_;
  char* back_;
  bool is_starting_ = true;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_H2_MEMORY_H_
