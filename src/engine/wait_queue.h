// WaitQueue: the requests that wait for a row, and whose turn it is.
//
// 1. The lowest level goes first. A request's level is its priority, less one for every kPatience admissions that it
// has
//    seen: so an urgent request overtakes, and none waits for ever, whatever comes.
// 2. Within a level those that were preempted go first: they have had their turn.
// 3. Then clients share fairly, by a virtual token counter (Sheng et al., "Fairness in Serving Large Language Models",
//    OSDI 2024): the turn is the client's that has been served least. A client is charged for the prompt tokens that it
//    makes the engine compute, and twice for each output token. One that comes back after a pause is lifted to the
//    least served client with a request in the engine: an idle time is no credit.
// 4. Then in order of arrival.
//
// Deterministic; no clock. One thread: the scheduler's.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/request_state.h"

namespace bz::engine {

// One of those who share the engine.
struct FairClient {
  int64_t served = 0;    // the virtual token counter
  int32_t requests = 0;  // in the engine
};

class WaitQueue {
 public:
  static constexpr int64_t kPatience = 64;   // admissions that lift a request one level
  static constexpr int64_t kOutputCost = 2;  // of a token, in prompt tokens

  size_t size() const { return waiting_.size(); }
  size_t num_clients() const { return clients_.size(); }  // in the books
  // A new request.
  void add(StatePtr s);
  // A preempted one.
  void put_back(StatePtr s);
  // Whose turn it is. REQUIRES: size() > 0.
  RequestState& next() const;
  // Takes it out: it begins to run.
  StatePtr admit(const RequestState& s);
  // Takes out those of whom ended(s) is true. Followers are not looked at.
  template <class Ended>
  void erase_if(Ended&& ended) {
    std::erase_if(waiting_, ended);
  }

  // The books: every request of a client is opened once, when it comes, and closed once, when it has ended.
  void open(RequestState& s, const std::string& client);
  void close(RequestState& s);
  static void charge(RequestState& s, int64_t tokens) { s.client->served += tokens; }

 private:
  bool before(const RequestState& a, const RequestState& b) const;
  int64_t level(const RequestState& s) const { return s.priority - (num_admissions_ - s.arrived_at) / kPatience; }
  static constexpr int64_t kNobody = std::numeric_limits<int64_t>::max();
  int64_t least_served() const;

  std::vector<StatePtr> waiting_;
  std::unordered_map<std::string, FairClient> clients_;
  size_t sweep_at_ = 64;  // clients: then those whose absence changes nothing are forgotten, in an empty engine all
  int64_t num_admissions_ = 0;
  int64_t last_order_ = 0;
  int64_t first_order_ = 0;  // preempted ones, the last one first
};

}  // namespace bz::engine
