#include "loadgen/prompts.h"

#include <array>

#include <nlohmann/json.hpp>

namespace bz::loadgen {
namespace {

using nlohmann::json;

constexpr std::array kWords{"time",  "year",   "people", "way",   "day",   "man",   "thing",  "woman", "life",  "child",
                            "world", "school", "state",  "house", "hand",  "part",  "place",  "case",  "week",  "work",
                            "eye",   "night",  "point",  "home",  "water", "room",  "mother", "area",  "money", "story",
                            "fact",  "month",  "lot",    "right", "study", "book",  "word",   "side",  "kind",  "head",
                            "far",   "black",  "long",   "small", "early", "late",  "hard",   "open",  "red",   "white",
                            "green", "light",  "heavy",  "cold",  "warm",  "quiet", "old",    "young", "great", "low",
                            "north", "south",  "east",   "west"};

uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// The ids of a text; empty: the server has no /tokenize.
Result<std::vector<int32_t>> tokenize(const Target& target, const std::string& text) {
  BZ_ASSIGN(const Answer answer, ask(target, "/tokenize", json{{"model", target.model}, {"prompt", text}}.dump()));
  const json ids = json::parse(answer.body, nullptr, false);
  std::vector<int32_t> tokens;
  if (answer.status != 200 || !ids.is_object() || !ids.contains("tokens") || !ids["tokens"].is_array()) return tokens;
  for (const json& id : ids["tokens"]) {
    if (!id.is_number_integer()) return std::vector<int32_t>();
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

}  // namespace

std::string random_words(uint64_t seed, int32_t count) {
  std::string text;
  for (int32_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[mix(mix(seed) + static_cast<uint64_t>(i)) % kWords.size()];
  }
  return text;
}

Result<std::string> PromptMaker::body(uint64_t seed) const {
  json request{{"model", target->model}, {"max_tokens", out_len}, {"temperature", 0},
               {"stream", true},         {"ignore_eos", true},    {"stream_options", {{"include_usage", true}}}};
  const std::string text = random_words(seed, in_len);
  request["prompt"] = text;
  if (exact) {
    BZ_ASSIGN(std::vector<int32_t> tokens, tokenize(*target, text));
    if (static_cast<int32_t>(tokens.size()) < in_len) return internal_error("the server made too few tokens of a text");
    tokens.resize(static_cast<size_t>(in_len));
    request["prompt"] = tokens;
  }
  return request.dump();
}

Result<PromptMaker> make_prompts(const Target& target, int32_t in_len, int32_t out_len) {
  PromptMaker maker{&target, in_len, out_len, false};
  BZ_ASSIGN(const std::vector<int32_t> tokens, tokenize(target, random_words(0, in_len)));
  maker.exact = static_cast<int32_t>(tokens.size()) >= in_len;
  return maker;
}

}  // namespace bz::loadgen
