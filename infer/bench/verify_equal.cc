#include "infer/bench/verify_equal.h"

#include <ATen/ops/topk.h>

#include <algorithm>

#include "infer/requests/decode_flags.h"
#include "infer/requests/run_requests.h"
#include "model/cache/kv_cache.h"

namespace clover::infer {
namespace {

constexpr int64_t chunk = 256;  // rows of a prefill pass

/// Plain decoding of one sequence at a time, with the other options of the first configuration.
BenchConfiguration plain_configuration(const std::vector<BenchConfiguration>& configurations) {
  BenchConfiguration plain;
  if (!configurations.empty()) plain.options = configurations.front().options;
  plain.options.growth.policy = plain_policy;
  plain.options.budget = -1;
  plain.options.max_batch = 1;
  plain.options.page_size = EngineOptions{}.page_size;
  plain.options.prefill_chunk = EngineOptions{}.prefill_chunk;
  plain.options.graphs = false;
  return plain;
}

/// top_two_gap before the token at `position` of an answer.  Empty for conversations, because the prompts of
/// their later turns are not known here.
std::optional<double> gap_at(const LoadedModel& model, const BatchLine& line,
                             const std::vector<int64_t>& answer, int64_t position) {
  if (line.turns.size() > 1) return std::nullopt;
  std::vector<int64_t> ids = model.prompt_encoder->encode(line);
  const int64_t prompt_tokens = std::ssize(ids);
  ids.insert(ids.end(), answer.begin(), answer.begin() + position);
  return top_two_gap(*model.target, ids, prompt_tokens);
}

int64_t token_at(const std::vector<int64_t>& ids, int64_t position) {
  return position < static_cast<int64_t>(ids.size()) ? ids[position] : -1;
}

}  // namespace

std::optional<int64_t> first_difference(const std::vector<int64_t>& plain,
                                        const std::vector<int64_t>& other) {
  if (plain == other) return std::nullopt;
  return std::mismatch(plain.begin(), plain.end(), other.begin(), other.end()).first - plain.begin();
}

double top_two_gap(const model::Target& target, const std::vector<int64_t>& ids, int64_t prompt_tokens) {
  const int64_t length = static_cast<int64_t>(ids.size());
  constexpr int64_t page_size = 64;
  model::KvCache cache(target.kv_shape(0), (length + chunk) / page_size + 2, page_size);
  const int32_t sequence = cache.open(prompt_tokens);
  model::TargetOutput output;
  for (int64_t done = 0; done < length;) {
    const int64_t count = std::min(chunk, length - done);
    model::RowBatch batch;
    std::vector<int32_t> kept;
    for (int64_t i = 0; i < count; ++i) {
      batch.add(ids[done + i], sequence, static_cast<int32_t>(i) - 1);
      kept.push_back(static_cast<int32_t>(i));
    }
    done += count;
    if (done == length) batch.wanted_rows.push_back(count - 1);
    output = target.forward(batch, cache, {});
    cache.keep_rows(sequence, kept, target.config().layers);
  }
  const at::Tensor largest = std::get<0>(at::topk(output.logits[0], 2));
  return largest[0].item<double>() - largest[1].item<double>();
}

std::string configuration_name(const BenchConfiguration& configuration, const model::Target& target) {
  const EngineOptions& options = configuration.options;
  const nlohmann::json budget = resolved_budget(options.growth, options.budget);
  std::string name = to_string(options.growth.policy);
  if (growth_policy(options.growth.policy).drafts && !budget.is_null()) name += " budget " + budget.dump();
  name += ", batch " + std::to_string(options.max_batch);
  if (options.page_size != EngineOptions{}.page_size) name += ", page " + std::to_string(options.page_size);
  if (options.prefill_chunk != EngineOptions{}.prefill_chunk) {
    name += ", prefill chunk " + std::to_string(options.prefill_chunk);
  }
  if (!options.graphs && !target.device().is_cpu()) name += ", no graphs";
  return name;
}

EqualityReport compare_outputs(const LoadedModel& model,
                               const std::vector<BenchConfiguration>& configurations,
                               const std::vector<BatchLine>& lines,
                               const std::function<void(const std::string&)>& log) {
  EqualityReport report;
  report.requests = static_cast<int64_t>(lines.size());
  const BenchConfiguration plain = plain_configuration(configurations);
  const RunOutcome expected =
      run_requests(*model.target, nullptr, *model.prompt_encoder, plain.options, lines);
  for (const BenchConfiguration& configuration : configurations) {
    const RunOutcome found = run_requests(*model.target, configuration.drafter, *model.prompt_encoder,
                                          configuration.options, lines);
    ++report.configurations;
    int64_t different = 0;
    for (size_t line = 0; line < lines.size(); ++line) {
      const auto position = first_difference(expected.token_ids[line], found.token_ids[line]);
      if (!position) continue;
      ++different;
      Difference difference{configuration_name(configuration, *model.target),
                            lines[line].number,
                            *position,
                            token_at(expected.token_ids[line], *position),
                            token_at(found.token_ids[line], *position),
                            std::nullopt};
      // Each gap takes a pass over the whole text.
      if (report.differences.size() < 16) {
        difference.top_two_gap = gap_at(model, lines[line], expected.token_ids[line], *position);
      }
      report.differences.push_back(difference);
    }
    log(configuration_name(configuration, *model.target) + ": " +
        (different ? std::to_string(different) + " of " + std::to_string(lines.size()) + " answers differ"
                   : "all " + std::to_string(lines.size()) + " answers equal"));
  }
  return report;
}

}  // namespace clover::infer
