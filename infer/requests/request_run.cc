#include "infer/requests/request_run.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "data/files/error.h"
#include "infer/program/interrupt.h"
#include "infer/program/machine.h"
#include "infer/requests/batch_task.h"

namespace clover::infer {
namespace {

constexpr int64_t rows_of_a_pass = 512;  // prefill chunk or tree, on top of what is committed

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int64_t kv_memory_for(const model::Target& target, const model::Drafter* drafter, int64_t sequences,
                      int64_t tokens, int64_t page_size) {
  const model::KvShape shape = target.kv_shape(drafter ? drafter->kv_layers() : 0);
  const int64_t pages = (tokens + rows_of_a_pass) / page_size + 2;
  const int64_t wanted = sequences * pages * model::KvCache::bytes_per_page(shape, page_size);
  // The CPU's memory is taken as it is used, a GPU's at once: there fewer sequences go at a time instead.
  return shape.device.is_cpu() ? wanted : std::min(wanted, memory_for_cache(shape.device));
}

int64_t longest_sequence(const std::vector<BatchLine>& lines, const PromptEncoder& prompts, int64_t context) {
  int64_t longest = 1;
  for (const BatchLine& line : lines) {
    const int64_t answer = std::min(line.sampling.max_tokens, context);
    int64_t length = 0;
    for (size_t choice = 0; choice < line.choices(); ++choice)
      length = std::max(length, static_cast<int64_t>(prompts.encode(line, choice).size()) + answer);
    for (size_t turn = 1; turn < line.turns.size(); ++turn) {
      // A byte is at most a token; the template adds a few around each message.
      length += static_cast<int64_t>(line.turns[turn].size()) + 32 + answer;
    }
    longest = std::max(longest, length);
  }
  return std::min(longest, context);
}

RunOutcome run_requests(const model::Target& target, model::Drafter* drafter, const PromptEncoder& prompts,
                        EngineOptions options, const std::vector<BatchLine>& lines) {
  const int64_t context = target.config().context;
  if (options.kv_memory == 0) {
    size_t prompts_in_all = 0;
    for (const BatchLine& line : lines) prompts_in_all += line.choices();
    const int64_t sequences = std::min<int64_t>(options.max_batch, static_cast<int64_t>(prompts_in_all));
    options.kv_memory = kv_memory_for(target, drafter, sequences, longest_sequence(lines, prompts, context),
                                      options.page_size);
  }
  restart_peak_memory();
  Engine engine(target, drafter, prompts.tokenizer(), options);
  std::unordered_map<int64_t, size_t> index;
  std::vector<BatchTask> tasks;
  for (const BatchLine& line : lines) {
    index[line.number] = tasks.size();
    tasks.emplace_back(line);
    try {
      for (Request& request : tasks.back().start(prompts, context)) engine.submit(std::move(request));
    } catch (const data::InputError& error) {
      throw data::InputError("line " + std::to_string(line.number) + ": " + error.what());
    }
  }
  RunOutcome outcome;
  const auto begin = std::chrono::steady_clock::now();
  while (!engine.idle()) {
    for (Completion& completion : engine.step()) {
      const int64_t line = BatchTask::line_of(completion.tag);
      BatchTask& task = tasks[index.at(line)];
      if (!completion.error.empty())
        throw data::InputError("line " + std::to_string(line) + ": " + completion.error);
      outcome.all.add(completion);
      if (!task.line().category.empty()) outcome.by_category[task.line().category].add(completion);
      if (auto next = task.advance(std::move(completion), prompts, context)) engine.submit(std::move(*next));
    }
    stop_if_interrupted();
  }
  outcome.seconds = seconds_since(begin);
  outcome.stats = engine.stats();
  outcome.peak_memory = peak_memory();
  engine.keep_costs();
  for (const BatchTask& task : tasks) {
    auto& ids = outcome.token_ids.emplace_back();
    for (const Completion& answer : task.answers()) {
      ids.insert(ids.end(), answer.token_ids.begin(), answer.token_ids.end());
    }
  }
  return outcome;
}

}  // namespace clover::infer
