// Stands before Abseil's header of this name in builds with AddressSanitizer. Debian compiles
// Abseil's library without it; Abseil's hash tables are laid out otherwise, and poison what is
// unused, in sources that see the sanitizer, so that the two halves of a table would disagree.
#include_next <absl/base/config.h>
#undef ABSL_HAVE_ADDRESS_SANITIZER
