#ifndef LOWKEY_SERVER_VERSION_H_
#define LOWKEY_SERVER_VERSION_H_

namespace lowkey {

// Of the build: "0.1.0".
inline constexpr char kVersion[] = LOWKEY_VERSION;

}  // namespace lowkey

#endif  // LOWKEY_SERVER_VERSION_H_
