#include "loadgen/report.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace bz::loadgen {
namespace {

using nlohmann::ordered_json;

ordered_json milliseconds(const Summary& s) {
  return {{"mean", s.mean * 1e3}, {"p50", s.p50 * 1e3}, {"p90", s.p90 * 1e3},
          {"p99", s.p99 * 1e3},   {"max", s.max * 1e3}, {"count", s.count}};
}

ordered_json level_json(const Level& l) {
  ordered_json out{{"name", l.name},
                   {"concurrency", l.concurrency},
                   {"requests", l.requests},
                   {"failed", l.failed},
                   {"seconds", l.seconds},
                   {"prompt_tokens", l.prompt_tokens},
                   {"output_tokens", l.output_tokens},
                   {"output_tokens_per_second", l.output_rate()},
                   {"total_tokens_per_second", l.total_rate()},
                   {"requests_per_second", l.request_rate()},
                   {"ttft_ms", milliseconds(l.ttft)},
                   {"itl_ms", milliseconds(l.itl)},
                   {"tpot_ms", milliseconds(l.tpot)},
                   {"e2e_ms", milliseconds(l.e2e)}};
  if (!l.first_error.empty()) out["first_error"] = l.first_error;
  return out;
}

}  // namespace

Level make_level(std::string name, int32_t concurrency, const LoadResult& result) {
  Level l;
  l.name = std::move(name);
  l.concurrency = concurrency;
  l.requests = result.streams.size();
  l.seconds = result.seconds;
  std::vector<double> ttft, itl, tpot, e2e;
  for (const StreamResult& s : result.streams) {
    if (!s.error.empty()) {
      if (l.failed++ == 0) l.first_error = s.error;
      continue;
    }
    l.prompt_tokens += s.prompt_tokens;
    l.output_tokens += s.output_tokens;
    ttft.push_back(s.first_token);
    e2e.push_back(s.end);
    itl.insert(itl.end(), s.gaps.begin(), s.gaps.end());
    if (s.output_tokens > 1) tpot.push_back((s.end - s.first_token) / static_cast<double>(s.output_tokens - 1));
  }
  l.ttft = summarize(std::move(ttft));
  l.itl = summarize(std::move(itl));
  l.tpot = summarize(std::move(tpot));
  l.e2e = summarize(std::move(e2e));
  return l;
}

std::string table(const Report& r) {
  std::string out = fmt::format("{:>12} {:>9} {:>9} {:>9} | {:^26} | {:^26} | {:^26}\n", "", "out tok/s", "all tok/s",
                                "failed", "first token, ms", "between tokens, ms", "end to end, ms");
  out += fmt::format("{:>12} {:>9} {:>9} {:>9} |", "", "", "", "");
  for (int i = 0; i < 3; ++i) out += fmt::format(" {:>8} {:>8} {:>8}{}", "p50", "p90", "p99", i < 2 ? " |" : "\n");
  for (const Level& l : r.levels) {
    out += fmt::format("{:>12} {:>9.1f} {:>9.1f} {:>9}", l.name, l.output_rate(), l.total_rate(),
                       fmt::format("{}/{}", l.failed, l.requests));
    for (const Summary* s : {&l.ttft, &l.itl, &l.e2e}) {
      out += fmt::format(" | {:>8.1f} {:>8.1f} {:>8.1f}", s->p50 * 1e3, s->p90 * 1e3, s->p99 * 1e3);
    }
    out += "\n";
  }
  return out;
}

ordered_json to_json(const Report& r) {
  ordered_json levels = ordered_json::array();
  for (const Level& l : r.levels) levels.push_back(level_json(l));
  return {{"bench", r.kind},
          {"url", r.url},
          {"model", r.model},
          {"in_len", r.in_len},
          {"out_len", r.out_len},
          {"exact_prompts", r.exact_prompts},
          {"seed_offset", r.seed_offset},
          {"levels", levels}};
}

}  // namespace bz::loadgen
