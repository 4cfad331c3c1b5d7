#ifndef LOWKEY_SERVER_API_PAGE_EMBEDDED_PAGE_H_
#define LOWKEY_SERVER_API_PAGE_EMBEDDED_PAGE_H_

#include <cstddef>

namespace lowkey {

// page.html and SHA-256 hashes in hexadecimal, which CMake makes a source of (CMakeLists.txt).
extern const char kPageHtml[];
extern const size_t kPageBytes;
extern const char kPageHash[];        // of the whole page
extern const char kPageStyleHash[];   // of what is between <style> and </style>
extern const char kPageScriptHash[];  // of what is between <script> and </script>

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_PAGE_EMBEDDED_PAGE_H_
