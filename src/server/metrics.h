// Metrics: what the server itself counts and times, and the Prometheus text of everything.
//
// Names are the field's usual ones under `blockzero:`. IO thread only.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/http.h"

namespace bz::server {

// Cumulative on output, plain counts inside.
class Histogram {
 public:
  explicit Histogram(std::span<const double> upper_bounds);
  void observe(double value, int64_t times = 1);

  std::span<const double> bounds() const { return bounds_; }
  // One more than bounds: the last counts what is above all of them.
  std::span<const int64_t> counts() const { return counts_; }
  double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;
  double sum_ = 0;
};

struct Metrics {
  Metrics();

  Histogram time_to_first_token;    // seconds from the request's arrival
  Histogram inter_token_latency;    // seconds; tokens that arrive together share the time since the last arrival
  Histogram request_latency;        // seconds
  Histogram time_per_output_token;  // seconds; of a request, the mean after its first token
  Histogram prompt_tokens;
  Histogram max_tokens;  // asked for
  Histogram generation_tokens;
  std::map<std::string, int64_t, std::less<>> finished;      // by finish reason
  std::map<std::pair<std::string, int>, int64_t> responses;  // by route and HTTP status
  int64_t queue_full = 0;                                    // requests refused because too many waited
  int64_t disconnects = 0;                                   // clients that left before their answer ended
};

// The text of GET /metrics. Without an engine (still loading): the server's part alone.
std::string metrics_text(const Metrics& metrics, const HttpStats& http, const engine::EngineStats* engine,
                         std::string_view model);

}  // namespace bz::server
