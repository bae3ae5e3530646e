#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "data/chat/chat_template.h"
#include "infer/requests/sampling_params.h"
#include "infer/tree/verify.h"

namespace clover::infer {

/// The shapes that a line of a batch file may have.  A file may mix them.
enum class LineShape {
  prompt,      // {"prompt"}: the text is continued as it is
  messages,    // {"messages"}: rendered by the chat template
  turns,       // {"turns"}: user messages, each answered before the next is sent
  text,        // {"text"}: for the command `tokenize` only
  chat,        // OpenAI batch request to /v1/chat/completions
  completion,  // OpenAI batch request to /v1/completions
};

/// The top-level fields of a line that parsing and writing would change (large numbers, the order of keys):
/// name -> JSON text as the line has it.
using VerbatimFields = std::map<std::string, std::string>;

/// One prompt of a "prompt" list (OpenAI's completions): a text, or token ids.
struct ListedPrompt {
  std::string text;          // empty when ids are given
  std::vector<int64_t> ids;  // empty when a text is given
};

/// One request of a batch file, checked but not yet tokenised.
struct BatchLine {
  int64_t number = 0;  // line number in the file, from 1
  LineShape shape = LineShape::prompt;
  nlohmann::json record;                // the whole line
  nlohmann::json id;                    // "id" or "custom_id": a string, a number or null
  VerbatimFields verbatim;              // fields of `record` to write out as they were read
  std::string category;                 // statistics are also summed by category; empty: none
  std::string prompt;                   // for the shapes prompt, text and completion
  std::vector<data::Message> messages;  // for messages, chat and turns; grows as turns are answered
  data::TemplateArguments arguments;    // tools, documents and so on for the chat template
  std::vector<std::string> turns;       // for turns: all messages of the user
  std::vector<ListedPrompt> prompts;    // instead of `prompt` where that is a list; each is answered
  SamplingParams sampling;

  /// Whether the line is an OpenAI batch request, which is answered in OpenAI's form.
  bool openai() const { return shape == LineShape::chat || shape == LineShape::completion; }
  /// Whether the line is a conversation, which the chat template renders.
  bool conversation() const {
    return shape != LineShape::prompt && shape != LineShape::text && shape != LineShape::completion;
  }

  /// The number of prompts that are answered independently; a conversation counts as one.
  size_t prompt_count() const { return std::max<size_t>(1, prompts.size()); }

  /// The key of the request's random numbers, which depends on the request alone.  RandomKey::request is a
  /// stable hash of the id (without one, of the line number) and the prompt's index; 0 when the request gives
  /// its own seed.
  RandomKey random_key(size_t prompt_index = 0) const;
};

/// A line that cannot be answered.
struct BadLine {
  int64_t number = 0;
  nlohmann::json id;             // as in BatchLine; null where there is none or it could not be read
  bool openai = false;           // BatchLine::openai()
  std::string message;           // why, in one sentence
  VerbatimFields verbatim = {};  // the id as it was written

  /// The error record of the output: {"line", "id", "error": {"message"}}, or the OpenAI batch form.
  nlohmann::json record() const;
};

/// The entry of the id in `line.verbatim`; empty when there is none.
VerbatimFields verbatim_id(const BatchLine& line);

/// An output record as one line of JSON.  The texts in `verbatim` replace the record's fields of the same
/// names.
std::string record_to_text(const nlohmann::json& record, const VerbatimFields& verbatim);

/// Parses one line.  Does not throw for any content.  `defaults` fill what the line does not set.  With
/// `tokenize` (for the command of that name), {"text"} and empty texts are accepted too.
std::variant<BatchLine, BadLine> parse_batch_line(int64_t number, std::string_view text,
                                                  const SamplingParams& defaults, bool tokenize = false);

/// Parses the lines of one file in order.  A line with the id of an earlier line is a BadLine.
class BatchParser {
 public:
  explicit BatchParser(SamplingParams defaults, bool tokenize = false)
      : defaults_(std::move(defaults)), tokenize_(tokenize) {}

  std::variant<BatchLine, BadLine> parse(int64_t number, std::string_view text);

 private:
  SamplingParams defaults_;
  bool tokenize_;
  std::unordered_set<std::string> seen_ids_;
};

/// InputError when the file is one JSON array instead of one JSON object per line.
void refuse_json_array(const std::string& file);

/// The error of a line that was not parsed because it is longer than `limit` bytes.
BadLine overlong_line(int64_t number, size_t limit);

/// Reads every request of a file, for commands that measure or compare.  InputError for the first bad line,
/// and for a file without requests.
std::vector<BatchLine> read_batch_file(const std::string& file, const SamplingParams& defaults);

}  // namespace clover::infer
