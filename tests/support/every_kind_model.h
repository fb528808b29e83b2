// EveryKindModel: a model that computes nothing but the truth about its cache, with one layer of every kind.
//
// An entry is a hash of the request's tokens up to its own, so that equal prefixes are equal bytes and anything else is
// different. The forward writes every layer's entries where prepare says, reads back everything its queries may see,
// and makes the next token from the hash: one wrong address anywhere, and the answer is not next_tokens(). A read that
// finds somebody else's bytes gives a NaN, which fails the request at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/model.h"

namespace bz::test {

inline constexpr int32_t kEveryKindVocab = 97;

// CPU only. large: the full layer's entries and the state are, so that the small caches share their tables.
std::unique_ptr<models::Model> every_kind_model(int32_t max_model_len, int32_t num_spec, bool large = false);

// What the model must answer to a prompt.
std::vector<int32_t> next_tokens(const std::vector<int32_t>& prompt, int32_t count);

}  // namespace bz::test
