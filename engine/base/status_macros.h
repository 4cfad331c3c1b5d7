#ifndef LOWKEY_ENGINE_BASE_STATUS_MACROS_H_
#define LOWKEY_ENGINE_BASE_STATUS_MACROS_H_

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expr` (an absl::Status) is not OK.
#define LK_RETURN_IF_ERROR(expr)                                            \
  do {                                                                      \
    if (absl::Status lk_status = (expr); !lk_status.ok()) return lk_status; \
  } while (false)

#define LK_CONCAT_INNER(a, b) a##b
#define LK_CONCAT(a, b) LK_CONCAT_INNER(a, b)

// `LK_ASSIGN_OR_RETURN(auto x, F())` sets x to the value of F(), or returns F()'s error.
#define LK_ASSIGN_OR_RETURN(lhs, expr) \
  LK_ASSIGN_OR_RETURN_INNER(LK_CONCAT(lk_or_, __LINE__), lhs, expr)
#define LK_ASSIGN_OR_RETURN_INNER(var, lhs, expr) \
  auto var = (expr);                              \
  if (!var.ok()) return std::move(var).status();  \
  lhs = *std::move(var)

// Aborts on our own bugs only: no request, file or flag may reach a failing check.
#define LK_CHECK(condition)                                                              \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)

#endif  // LOWKEY_ENGINE_BASE_STATUS_MACROS_H_
