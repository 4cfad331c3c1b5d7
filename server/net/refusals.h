#ifndef LOWKEY_SERVER_NET_REFUSALS_H_
#define LOWKEY_SERVER_NET_REFUSALS_H_

#include <functional>
#include <string_view>

namespace lowkey {

// Why the server ended or refused a connection or a request before it became work. /metrics counts
// each reason.
enum class NetworkRefusal {
  kConnections,       // the server has as many connections as it takes
  kPeerConnections,   // this address has as many connections as one may have
  kDescriptors,       // the process has no file descriptor left
  kHandshakeTimeout,  // TLS was not agreed in time
  kHandshakeFailure,  // TLS could not be agreed
  kFirstByteTimeout,  // nothing came
  kHeadTimeout,       // a request's head did not end in time
  kBodyTimeout,       // a request's body stalled or took too long
  kIdleTimeout,       // no request came for long
  kUnreadAnswer,      // the client does not read
  kBadProtocol,       // bytes that are not HTTP
  kHeadSize,          // too many header fields, or too long ones
  kBodySize,          // a body or message that is too long
  kStreams,           // more requests at once than a connection may have
  kResets,            // too many requests that were begun and ended again
  kPings,             // more pings than gRPC's rules allow
  kControlFrames,     // too many frames that carry nothing
  kBodyMemory,        // the bodies that are being received take too much memory
  kAnswerMemory,      // the answers that wait for their readers take too much memory
  kElements,          // a message with too many elements, or nested too deeply
  kQueue,             // too many requests wait to be read
};

// The reasons' names in /metrics, by their values.
inline constexpr std::string_view kNetworkRefusalNames[] = {"connections",
                                                            "peer_connections",
                                                            "descriptors",
                                                            "handshake_timeout",
                                                            "handshake_failure",
                                                            "first_byte_timeout",
                                                            "head_timeout",
                                                            "body_timeout",
                                                            "idle_timeout",
                                                            "unread_answer",
                                                            "bad_protocol",
                                                            "head_size",
                                                            "body_size",
                                                            "streams",
                                                            "resets",
                                                            "pings",
                                                            "control_frames",
                                                            "body_memory",
                                                            "answer_memory",
                                                            "elements",
                                                            "queue"};

// Receives a refusal, on any thread.
using OnRefusal = std::function<void(NetworkRefusal)>;

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_REFUSALS_H_
