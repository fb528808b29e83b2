#include "calibration/machine.h"

#include <cpuid.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

namespace bz::bench {
namespace {

constexpr int64_t kDefaultL2 = int64_t{1} << 20;
constexpr int64_t kDefaultL3 = int64_t{32} << 20;

struct CpuId {
  std::string vendor;
  unsigned family = 0;
  unsigned model = 0;
};

CpuId read_cpuid() {
  CpuId id;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return id;
  char vendor[13] = {};
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &d, 4);
  std::memcpy(vendor + 8, &c, 4);
  id.vendor = vendor;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return id;
  id.family = (a >> 8) & 0xf;
  id.model = (a >> 4) & 0xf;
  // Both vendors: the extended model counts for families 6 and 15, the extended family for 15.
  if (id.family == 0x6 || id.family == 0xf) id.model |= ((a >> 16) & 0xf) << 4;
  if (id.family == 0xf) id.family += (a >> 20) & 0xff;
  return id;
}

std::string amd_core(unsigned family, unsigned model) {
  if (family == 0x17) return model >= 0x30 ? "zen2" : "zen";
  if (family == 0x19) {
    const bool zen4 = (model >= 0x10 && model <= 0x1f) || (model >= 0x60 && model <= 0x7f) || model >= 0xa0;
    return zen4 ? "zen4" : "zen3";
  }
  return family == 0x1a ? "zen5" : "";
}

std::string intel_core(unsigned model) {
  switch (model) {
    case 0x3f: return "haswell";
    case 0x4f: return "broadwell";
    case 0x55: return "skylake";
    case 0x6a: return "icelake";
    case 0x8f: return "sapphirerapids";
    case 0xcf: return "emeraldrapids";
    case 0xad: return "graniterapids";
  }
  return "";
}

std::string core_name(const CpuId& id) {
  std::string name;
  if (id.vendor == "AuthenticAMD") name = amd_core(id.family, id.model);
  if (id.vendor == "GenuineIntel" && id.family == 6) name = intel_core(id.model);
  return name.empty() ? fmt::format("x86-f{:x}m{:x}", id.family, id.model) : name;
}

std::string brand_string() {
  unsigned words[12] = {};
  for (unsigned i = 0; i < 3; ++i) {
    unsigned* w = words + 4 * i;
    if (__get_cpuid(0x80000002 + i, w, w + 1, w + 2, w + 3) == 0) return "unknown";
  }
  char text[sizeof(words) + 1] = {};
  std::memcpy(text, words, sizeof(words));
  std::string brand = text;
  brand.erase(brand.find_last_not_of(' ') + 1);
  return brand;
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

int64_t cache_bytes(int sysconf_name, int64_t otherwise) {
  const long bytes = sysconf(sysconf_name);
  return bytes > 0 ? bytes : otherwise;
}

}  // namespace

Machine describe_machine() {
  Machine m;
  m.cores = usable_cores();
  m.name = fmt::format("{}-{}core", core_name(read_cpuid()), m.cores);
  m.cpu = brand_string();
  m.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, kDefaultL2);
  m.l3_bytes = cache_bytes(_SC_LEVEL3_CACHE_SIZE, kDefaultL3);
  if (getloadavg(&m.load, 1) != 1) m.load = -1;
  return m;
}

}  // namespace bz::bench
