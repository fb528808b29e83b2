// B0: what this machine can do, measured now. Every other figure of the same run is divided by these.
//
//   b0_cpu [--json FILE] [--quick]
#include <cstdio>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "calibration/compute.h"
#include "calibration/machine.h"
#include "calibration/memory.h"
#include "calibration/system.h"

namespace bz::bench {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double x) { return std::stod(fmt::format("{:.2f}", x)); }

Json to_json(const Machine& m, const MemoryRates& memory, const std::vector<ComputeRate>& compute,
             const SystemCosts& system) {
  Json j;
  j["machine"] = m.name;
  j["cpu"] = m.cpu;
  j["cores"] = m.cores;
  j["l3_bytes"] = m.l3_bytes;
  j["load"] = m.load;
  j["memory_gb_per_s"] = {
      {"buffer_bytes", memory.buffer_bytes},   {"read_1", rounded(memory.read_1)},
      {"read_all", rounded(memory.read_all)},  {"read_all_4k_pages", rounded(memory.read_all_4k)},
      {"l3_read_all", rounded(memory.l3_all)}, {"l2_read_1", rounded(memory.l2_1)},
      {"memcpy_1", rounded(memory.copy_1)},    {"memcpy_all", rounded(memory.copy_all)},
  };
  j["compute_gop_per_s"] = Json::array();
  for (const ComputeRate& r : compute) {
    j["compute_gop_per_s"].push_back(
        {{"kind", r.kind}, {"isa", r.isa}, {"how", r.how}, {"one", rounded(r.one)}, {"all", rounded(r.all)}});
  }
  j["core_handover_ns"] = rounded(system.handover_ns);
  j["sha256_72_bytes_ns"] = rounded(system.sha256_72_ns);
  j["write_64_bytes_ns"] = {{"dev_null", rounded(system.write_null_ns)},
                            {"tcp_loopback", rounded(system.write_tcp_ns)}};
  return j;
}

void print(const Machine& m, const MemoryRates& memory, const std::vector<ComputeRate>& compute,
           const SystemCosts& system) {
  fmt::print("{}: {}, {} cores, load {:.2f}\n", m.name, m.cpu, m.cores, m.load);
  fmt::print(
      "memory, GB/s: read {:.1f} (1 thread), {:.1f} (all), {:.1f} (all, 4 KiB pages); L3 {:.0f}, L2 {:.0f} a core; "
      "memcpy {:.1f} (1), {:.1f} (all), read + write\n",
      memory.read_1, memory.read_all, memory.read_all_4k, memory.l3_all, memory.l2_1, memory.copy_1, memory.copy_all);
  for (const ComputeRate& r : compute) {
    fmt::print("{:<6} {:<12} {:>8.1f} GOP/s a core, {:>8.1f} all cores   ({})\n", r.kind, r.isa, r.one, r.all, r.how);
  }
  fmt::print(
      "SHA-256 of 72 bytes {:.0f} ns; write() of 64 bytes {:.0f} ns to /dev/null, {:.0f} ns to loopback TCP; two cores "
      "hand over in {:.0f} ns\n",
      system.sha256_72_ns, system.write_null_ns, system.write_tcp_ns, system.handover_ns);
}

int run(int argc, char** argv) {
  bool quick = false;
  std::string json_path;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      quick = true;
    } else if (arg == "--json" && i + 1 < argc) {
      json_path = argv[++i];
    } else {
      fmt::print(stderr, "usage: b0_cpu [--json FILE] [--quick]\n");
      return 2;
    }
  }
  const Machine machine = describe_machine();
  const MemoryRates memory = measure_memory(machine, quick);
  const std::vector<ComputeRate> compute = measure_compute(machine.cores, quick);
  const SystemCosts system = measure_system(quick);
  print(machine, memory, compute, system);
  if (json_path.empty()) return 0;
  std::ofstream out(json_path);
  out << to_json(machine, memory, compute, system).dump(2) << "\n";
  if (!out.flush()) {
    fmt::print(stderr, "b0_cpu: cannot write {}\n", json_path);
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace bz::bench

int main(int argc, char** argv) { return bz::bench::run(argc, argv); }
