#include "server/metrics.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace bz::server {
namespace {

constexpr std::array kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
                                 0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0};
constexpr std::array kBetweenTokens{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075,
                                    0.1,    0.15,    0.2,    0.3,   0.4,    0.5,   0.75, 1.0,   2.5,  5.0};
constexpr std::array kRequest{0.01, 0.05, 0.1,  0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,
                              10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0};
constexpr std::array kTokens{1.0,    2.0,    5.0,    10.0, 20.0, 50.0, 100.0, 200.0, 500.0,
                             1000.0, 2000.0, 5000.0, 1e4,  2e4,  5e4,  1e5,   2e5,   5e5};

// A label's value: quotes, backslashes and line ends escaped.
std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

class PrometheusText {
 public:
  explicit PrometheusText(std::string_view model) : model_(fmt::format("model_name=\"{}\"", label_value(model))) {}

  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    fmt::format_to(std::back_inserter(out_), "# HELP blockzero:{} {}\n# TYPE blockzero:{} {}\n", name, help, name,
                   type);
  }
  template <class T>
  void value(T v, std::string_view labels = {}) {
    fmt::format_to(std::back_inserter(out_), "blockzero:{}{{{}{}{}}} {}\n", name_, model_, labels.empty() ? "" : ",",
                   labels, v);
  }
  template <class T>
  void counter(std::string_view name, std::string_view help, T v) {
    family(name, "counter", help);
    value(v);
  }
  template <class T>
  void gauge(std::string_view name, std::string_view help, T v) {
    family(name, "gauge", help);
    value(v);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& h) {
    family(name, "histogram", help);
    const auto to = std::back_inserter(out_);
    int64_t below = 0;
    for (size_t i = 0; i < h.counts().size(); ++i) {
      below += h.counts()[i];
      const std::string bound = i < h.bounds().size() ? fmt::format("{}", h.bounds()[i]) : "+Inf";
      fmt::format_to(to, "blockzero:{}_bucket{{{},le=\"{}\"}} {}\n", name, model_, bound, below);
    }
    fmt::format_to(to, "blockzero:{}_sum{{{}}} {}\nblockzero:{}_count{{{}}} {}\n", name, model_, h.sum(), name, model_,
                   below);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string model_, out_;
  std::string_view name_;
};

void write_speculation(PrometheusText& out, const engine::EngineStats& s) {
  out.counter("spec_decode_num_drafts_total", "Times that a request's drafts were verified", s.spec_drafts);
  out.counter("spec_decode_num_draft_tokens_total", "Draft tokens verified", s.spec_draft_tokens);
  out.counter("spec_decode_num_accepted_tokens_total", "Draft tokens accepted", s.spec_accepted_tokens);
  out.family("spec_decode_num_accepted_tokens_per_pos_total", "counter",
             "Draft tokens accepted, by place in the draft");
  for (size_t i = 0; i < s.spec_accepted_by_place.size(); ++i) {
    out.value(s.spec_accepted_by_place[i], fmt::format("position=\"{}\"", i));
  }
}

void write_engine(PrometheusText& out, const engine::EngineStats& s) {
  out.gauge("engine_alive", "1 until the engine fail-stops", s.alive ? 1 : 0);
  out.gauge("null_block_clean", "1 while every byte of the null block is zero, read from the bytes",
            s.null_block_clean ? 1 : 0);
  out.gauge("num_requests_running", "Requests in the batch", s.requests_running);
  out.gauge("num_requests_waiting", "Requests waiting for a place in the batch", s.requests_waiting);
  const int64_t used = s.blocks_total - s.blocks_free;
  out.gauge("kv_cache_usage_perc", "Used part of the KV cache's blocks, 1 is all",
            s.blocks_total > 0 ? static_cast<double>(used) / static_cast<double>(s.blocks_total) : 0.0);
  out.gauge("kv_cache_blocks", "Blocks of the KV cache, without the null block", s.blocks_total);
  out.gauge("kv_cache_blocks_free", "Free blocks", s.blocks_free);
  out.gauge("kv_cache_bytes", "Bytes of the KV cache", s.kv_cache_bytes);
  out.counter("num_preemptions_total", "Requests put back to waiting", s.requests_preempted);
  out.counter("prompt_tokens_total", "Prompt tokens computed", s.prompt_tokens);
  out.counter("generation_tokens_total", "Tokens sampled", s.generation_tokens);
  out.counter("prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache", s.prefix_query_tokens);
  out.counter("prefix_cache_hits_total", "Prompt tokens found there", s.prefix_hit_tokens);
  out.family("prefix_cache_misses_total", "counter", "Admissions that found no more, by the reason");
  for (const auto& [reason, count] : s.prefix_misses) {
    out.value(count, fmt::format("reason=\"{}\"", label_value(reason)));
  }
  out.counter("requests_forked_total", "Choices that began as a copy of another one's prompt", s.requests_forked);
  if (!s.spec_accepted_by_place.empty()) write_speculation(out, s);
  out.counter("requests_finished_total", "Requests that ended, by any reason", s.requests_finished);
  out.counter("requests_failed_total", "Requests that ended with an error", s.requests_failed);
  out.counter("dummy_steps_total", "Steps without a live row", s.dummy_steps);
  out.counter("padded_rows_total", "Batch rows run that named the null row", s.padded_rows);
  out.counter("steps_without_graph_total", "Steps whose ops were enqueued one by one", s.steps_without_graph);
  out.family("steps_total", "counter", "Steps run, by graph key");
  if (s.steps_by_graph_key.empty()) out.value(s.steps);
  for (const auto& [key, count] : s.steps_by_graph_key) {
    out.value(count, fmt::format("graph_key=\"{}\"", label_value(key)));
  }
}

}  // namespace

Histogram::Histogram(std::span<const double> upper_bounds)
    : bounds_(upper_bounds.begin(), upper_bounds.end()), counts_(upper_bounds.size() + 1) {}

void Histogram::observe(double value, int64_t times) {
  const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<size_t>(bucket)] += times;
  sum_ += value * static_cast<double>(times);
}

Metrics::Metrics()
    : time_to_first_token(kFirstToken),
      inter_token_latency(kBetweenTokens),
      request_latency(kRequest),
      time_per_output_token(kBetweenTokens),
      prompt_tokens(kTokens),
      max_tokens(kTokens),
      generation_tokens(kTokens) {}

std::string metrics_text(const Metrics& m, const HttpStats& http, const engine::EngineStats* engine,
                         std::string_view model) {
  PrometheusText out(model);
  if (engine) write_engine(out, *engine);
  out.family("request_success_total", "counter", "Answers that ended, by finish reason");
  for (const auto& [reason, count] : m.finished) {
    out.value(count, fmt::format("finished_reason=\"{}\"", label_value(reason)));
  }
  out.histogram("time_to_first_token_seconds", "From a request's arrival to its first token", m.time_to_first_token);
  out.histogram("inter_token_latency_seconds", "Between tokens of a request", m.inter_token_latency);
  out.histogram("e2e_request_latency_seconds", "From a request's arrival to its end", m.request_latency);
  out.histogram("request_time_per_output_token_seconds", "Mean time between a request's tokens after its first",
                m.time_per_output_token);
  out.histogram("request_params_max_tokens", "Tokens that an answer was allowed", m.max_tokens);
  out.histogram("request_prompt_tokens", "Tokens of a prompt", m.prompt_tokens);
  out.histogram("request_generation_tokens", "Tokens of an answer", m.generation_tokens);
  out.counter("client_disconnects_total", "Clients that left before their answer ended", m.disconnects);
  out.counter("requests_refused_queue_full_total", "Requests refused because too many waited", m.queue_full);
  out.family("http_requests_total", "counter", "Answers given, by route and status");
  for (const auto& [key, count] : m.responses) {
    out.value(count, fmt::format("handler=\"{}\",status=\"{}\"", label_value(key.first), key.second));
  }
  out.gauge("http_connections", "Open connections", http.connections);
  out.counter("http_refused_total", "Connections refused or ended for broken HTTP, limits and time-outs", http.refused);
  return out.take();
}

}  // namespace bz::server
