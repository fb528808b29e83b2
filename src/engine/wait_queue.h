// WaitQueue: the requests that wait for a row, and whose turn it is.
//
// 1. The lowest level goes first. A request's level is its priority, less one for every kPatience admissions that it
//    has seen: so an urgent request overtakes, and none waits for ever, whatever comes.
// 2. Within a level those that were preempted go first: they have had their turn.
// 3. Then clients share fairly, by a virtual token counter (Sheng et al., "Fairness in Serving Large Language Models",
//    OSDI 2024): the turn is the client's that has been served least. A client is charged for the prompt tokens that it
//    makes the engine compute, and twice for each output token. One that comes back after a pause is lifted to the
//    least served client with a request in the engine: an idle time is no credit.
// 4. Then in order of arrival.
//
// Ten thousand may wait, so nothing looks at all of them. A level changes with admissions, but the order of levels does
// not: requests are kept by their `due`, the number of the admission at which their level becomes 0, and those of the
// lowest level are always those of the first dues, at most kPatience dues. What a client has been served only grows:
// its turns are put in their place when they come to the front. So everything costs O(log n), and next() a look at
// each of those dues.
//
// Deterministic; no clock. One thread: the scheduler's.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/request_state.h"

namespace bz::engine {

// One of those who share the engine.
struct FairClient {
  int64_t served = 0;    // the virtual token counter
  int64_t listed = 0;    // what it was when WaitQueue::present_ was put in order
  int32_t requests = 0;  // in the engine
};

class WaitQueue {
 public:
  static constexpr int64_t kPatience = 64;     // admissions that lift a request one level
  static constexpr int64_t kOutputCost = 2;    // of a token, in prompt tokens
  static constexpr size_t kMaxAbsent = 10000;  // clients without a request that the books keep, or twice as many

  size_t size() const { return size_; }
  size_t num_clients() const { return clients_.size(); }  // in the books
  // A new request.
  void add(StatePtr s);
  // A preempted one.
  void put_back(StatePtr s);
  // Whose turn it is. REQUIRES: size() > 0.
  RequestState& next();
  // Takes it out: it begins to run. REQUIRES (both): it waits here.
  StatePtr admit(const RequestState& s);
  // Takes it out: it has ended.
  StatePtr take(const RequestState& s);

  // The books: every request of a client is opened once, when it comes, and closed once, when it has ended.
  void open(RequestState& s, const std::string& client);
  void close(RequestState& s);
  static void charge(RequestState& s, int64_t tokens) { s.client->served += tokens; }

 private:
  // A client's requests of one due, or the preempted ones of all clients: first come, first served.
  struct Line {
    FairClient* client = nullptr;          // null: preempted ones, before all others
    int64_t served = 0;                    // in its turn: the client's when it was lined up
    std::map<int64_t, StatePtr> requests;  // by order
  };
  using Turn = std::pair<int64_t, int64_t>;  // served, and the order of the line's first request
  struct Cohort {                            // of one due
    std::map<const FairClient*, Line> lines;
    std::map<Turn, Line*> turns;
  };

  static int64_t due_of(const RequestState& s) { return s.arrived_at + kPatience * s.priority; }
  static FairClient* line_of(const RequestState& s) { return s.resumed ? nullptr : s.client; }
  static int64_t served(const Line& line) { return line.client == nullptr ? -1 : line.client->served; }
  static Turn turn_of(const Line& line) { return {line.served, line.requests.begin()->first}; }
  static Line& first_line(Cohort& cohort);
  void insert(StatePtr s);
  static constexpr int64_t kNobody = std::numeric_limits<int64_t>::max();
  int64_t least_served();

  std::map<int64_t, Cohort> cohorts_;  // by due
  size_t size_ = 0;
  std::unordered_map<std::string, FairClient> clients_;
  std::set<std::pair<int64_t, FairClient*>> present_;  // clients with a request in the engine, by `listed`
  size_t sweep_at_ = 64;  // clients: then those whose absence changes nothing are forgotten, in an empty engine all
  int64_t num_admissions_ = 0;
  int64_t last_order_ = 0;
  int64_t first_order_ = 0;  // preempted ones, the last one first
};

}  // namespace bz::engine
