#ifndef LOWKEY_SERVER_NET_TLS_TRANSPORT_H_
#define LOWKEY_SERVER_NET_TLS_TRANSPORT_H_

#include <memory>

#include "server/net/event_loop.h"
#include "server/net/owned_socket.h"
#include "server/net/tls_context.h"
#include "server/net/transport.h"

namespace lowkey {

// Makes a transport of OpenSSL on the socket itself.
std::unique_ptr<Transport> MakeTlsTransport(EventLoop& loop, OwnedSocket socket,
                                            const std::shared_ptr<const TlsContext>& tls);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_NET_TLS_TRANSPORT_H_
