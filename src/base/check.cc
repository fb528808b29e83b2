#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace bz {

void check_failed(const char* file, int line, const char* what, const std::string& detail) {
  std::fprintf(stderr, "blockzero: internal fault: %s:%d: check failed: %s%s%s%s\n", file, line, what,
               detail.empty() ? "" : " (", detail.c_str(), detail.empty() ? "" : ")");
  std::fflush(stderr);
  std::abort();
}

}  // namespace bz
