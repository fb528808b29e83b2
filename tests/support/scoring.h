// Teacher-forced logits of a text: plans made by hand (PlanRow::num_logits), run through the one step path.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/loaded_model.h"

namespace bz::test {

// Calls see(position, logits [V]) for every id of the text, in order, `chunk` ids a step. The model has run no step
// yet.
void score_text(engine::LoadedModel& model, const std::vector<int32_t>& ids, int32_t chunk,
                const std::function<void(int32_t position, std::span<const float> logits)>& see);

}  // namespace bz::test
