// What nghttp2 tells H2Session. None of these functions may call mem_recv, mem_send or
// terminate_session, and no exception may leave them.

#include <nghttp2/nghttp2.h>

#include <cstdint>
#include <new>
#include <string_view>

#include "server/http/h2_session.h"

namespace lowkey {
namespace {

std::string_view Text(const uint8_t* data, size_t n_bytes) {
  return {reinterpret_cast<const char*>(data), n_bytes};
}

// Runs `body` with the session. An exception (out of memory) ends the connection.
template <typename Body>
int Guarded(void* user_data, Body body) noexcept {
  H2Session& session = *static_cast<H2Session*>(user_data);
  try {
    return body(session);
  } catch (...) {
    return session.Fail({.code = NGHTTP2_INTERNAL_ERROR});
  }
}

int OnBeginHeaders(nghttp2_session*, const nghttp2_frame* frame, void* user_data) noexcept {
  return Guarded(user_data, [frame](H2Session& session) {
    const bool is_request =
        frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST;
    return is_request ? session.OnBeginHead(frame->hd.stream_id) : 0;
  });
}

int OnHeader(nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t n_name_bytes,
             const uint8_t* value, size_t n_value_bytes, uint8_t, void* user_data) noexcept {
  return Guarded(user_data, [=](H2Session& session) {
    return session.OnField(*frame, Text(name, n_name_bytes), Text(value, n_value_bytes));
  });
}

// RFC 9113, 8.2.1: a request with an invalid field is malformed. nghttp2 would drop the field.
int OnInvalidHeader(nghttp2_session*, const nghttp2_frame*, const uint8_t*, size_t, const uint8_t*,
                    size_t, uint8_t, void*) noexcept {
  return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

int OnFrameRecv(nghttp2_session*, const nghttp2_frame* frame, void* user_data) noexcept {
  return Guarded(user_data, [frame](H2Session& session) { return session.OnFrame(*frame); });
}

int OnDataChunk(nghttp2_session*, uint8_t, int32_t stream_id, const uint8_t* data, size_t n_bytes,
                void* user_data) noexcept {
  return Guarded(user_data, [=](H2Session& session) {
    return session.OnData(stream_id, Text(data, n_bytes));
  });
}

int OnInvalidFrame(nghttp2_session*, const nghttp2_frame* frame, int error,
                   void* user_data) noexcept {
  return Guarded(user_data, [=](H2Session& session) {
    session.OnInvalidFrame(*frame, error);
    return 0;
  });
}

int OnFrameSend(nghttp2_session*, const nghttp2_frame* frame, void* user_data) noexcept {
  return Guarded(user_data, [frame](H2Session& session) {
    session.OnFrameSent(*frame);
    return 0;
  });
}

int OnFrameNotSend(nghttp2_session*, const nghttp2_frame* frame, int error,
                   void* user_data) noexcept {
  return Guarded(user_data, [=](H2Session& session) {
    session.OnFrameNotSent(*frame, error);
    return 0;
  });
}

int OnStreamClose(nghttp2_session*, int32_t stream_id, uint32_t, void* user_data) noexcept {
  Guarded(user_data, [stream_id](H2Session& session) {
    session.OnStreamClose(stream_id);
    return 0;
  });
  return 0;
}

}  // namespace

nghttp2_session_callbacks* MakeH2Callbacks() {
  nghttp2_session_callbacks* callbacks = nullptr;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) throw std::bad_alloc();
  nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, OnBeginHeaders);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, OnHeader);
  nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, OnInvalidHeader);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, OnFrameRecv);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, OnDataChunk);
  nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, OnInvalidFrame);
  nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, OnFrameSend);
  nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, OnFrameNotSend);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, OnStreamClose);
  return callbacks;
}

}  // namespace lowkey
