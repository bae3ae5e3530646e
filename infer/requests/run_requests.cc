#include "infer/requests/run_requests.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/requests/in_flight_line.h"

namespace clover::infer {
namespace {

// Slots of each sequence beyond its own tokens, for the rows of a pass: the nodes of a tree or a prefill
// chunk.
constexpr int64_t extra_slots = 512;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// An upper bound of the tokens of a line's prompt and answers together, over all lines; at most the context.
int64_t longest_sequence(const std::vector<BatchLine>& lines, const PromptEncoder& encoder, int64_t context) {
  int64_t longest = 1;
  for (const BatchLine& line : lines) {
    const int64_t answer = std::min(line.sampling.max_tokens, context);
    int64_t length = 0;
    for (size_t index = 0; index < line.prompt_count(); ++index)
      length = std::max(length, static_cast<int64_t>(encoder.encode(line, index).size()) + answer);
    for (size_t turn = 1; turn < line.turns.size(); ++turn) {
      // A byte is at most one token; the template adds a few tokens around each message.
      length += static_cast<int64_t>(line.turns[turn].size()) + 32 + answer;
    }
    longest = std::max(longest, length);
  }
  return std::min(longest, context);
}

}  // namespace

int64_t kv_memory_for(const model::Target& target, const model::Drafter* drafter, int64_t sequences,
                      int64_t tokens, int64_t page_size) {
  const model::KvShape shape = target.kv_shape(drafter ? drafter->kv_layers() : 0);
  const int64_t pages = (tokens + extra_slots) / page_size + 2;
  const int64_t bytes = sequences * pages * model::KvCache::bytes_per_page(shape, page_size);
  // A CPU's pages are allocated when they are first used, a GPU's all at once.
  return shape.device.is_cpu() ? bytes : std::min(bytes, default_cache_bytes(shape.device));
}

namespace {

/// The bytes of the KV cache that the lines need.
int64_t default_kv_memory(const model::Target& target, const model::Drafter* drafter,
                          const PromptEncoder& encoder, const EngineOptions& options,
                          const std::vector<BatchLine>& lines) {
  int64_t prompt_count = 0;
  for (const BatchLine& line : lines) prompt_count += static_cast<int64_t>(line.prompt_count());
  const bool drafts = growth_policy(options.growth.policy).drafts;
  return kv_memory_for(target, drafts ? drafter : nullptr, std::min(options.max_batch, prompt_count),
                       longest_sequence(lines, encoder, target.config().context), options.page_size);
}

/// Submits the first requests of all lines.
std::vector<InFlightLine> submit_all(Engine& engine, const PromptEncoder& encoder,
                                     const std::vector<BatchLine>& lines, int64_t context) {
  std::vector<InFlightLine> in_flight;
  for (const BatchLine& line : lines) {
    in_flight.emplace_back(line);
    try {
      for (Request& request : in_flight.back().start(encoder, context)) engine.submit(std::move(request));
    } catch (const data::InputError& error) {
      throw data::InputError("line " + std::to_string(line.number) + ": " + error.what());
    }
  }
  return in_flight;
}

}  // namespace

RunOutcome run_requests(const model::Target& target, model::Drafter* drafter, const PromptEncoder& encoder,
                        EngineOptions options, const std::vector<BatchLine>& lines) {
  const int64_t context = target.config().context;
  if (options.kv_memory == 0) options.kv_memory = default_kv_memory(target, drafter, encoder, options, lines);
  reset_peak_memory();
  Engine engine(target, drafter, encoder.tokenizer(), options);
  std::vector<InFlightLine> in_flight = submit_all(engine, encoder, lines, context);
  std::unordered_map<int64_t, size_t> index_of;  // by line number
  for (size_t i = 0; i < lines.size(); ++i) index_of[lines[i].number] = i;

  RunOutcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  while (!engine.idle()) {
    for (Completion& completion : engine.step()) {
      const int64_t number = InFlightLine::line_number_of(completion.tag);
      InFlightLine& line = in_flight[index_of.at(number)];
      if (!completion.error.empty())
        throw data::InputError("line " + std::to_string(number) + ": " + completion.error);
      outcome.totals.add(completion);
      if (!line.input().category.empty()) outcome.by_category[line.input().category].add(completion);
      if (auto next = line.take_answer(std::move(completion), encoder, context))
        engine.submit(std::move(*next));
    }
    stop_if_interrupted();
  }
  outcome.seconds = seconds_since(begin);
  outcome.stats = engine.stats();
  outcome.peak_memory = peak_memory();
  engine.save_costs();
  for (const InFlightLine& line : in_flight) {
    auto& ids = outcome.token_ids.emplace_back();
    for (const Completion& answer : line.answers())
      ids.insert(ids.end(), answer.token_ids.begin(), answer.token_ids.end());
  }
  return outcome;
}

}  // namespace clover::infer
