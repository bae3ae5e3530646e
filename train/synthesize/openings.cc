#include "train/synthesize/openings.h"

#include <algorithm>

#include "data/files/error.h"
#include "data/text/utf8.h"
#include "infer/requests/batch_input.h"
#include "infer/requests/line_reader.h"
#include "train/synthesize/turn_check.h"

namespace clover::train {
namespace {

std::vector<std::string> read_topics(const std::string& file) {
  constexpr size_t max_bytes = 4096;
  std::vector<std::string> topics;
  infer::LineReader reader(file, max_bytes);
  for (std::string line; reader.next(line);) {
    const auto fail = [&](const std::string& what) {
      throw data::InputError("--topics " + file + ", line " + std::to_string(reader.number()) + ": " + what);
    };
    if (reader.too_long())
      fail("expected a topic of at most " + std::to_string(max_bytes) + " bytes, found more; shorten it");
    if (!data::is_utf8(line)) fail("expected UTF-8, found other bytes; convert the file to UTF-8");
    if (!infer::is_blank(line)) topics.push_back(trim_blanks(line));
  }
  if (topics.empty())
    throw data::InputError("--topics " + file + ": expected a topic on each line, found none");
  return topics;
}

/// The first user message of every request in the file.
std::vector<std::string> read_first_questions(const std::string& file) {
  std::vector<std::string> questions;
  for (const infer::BatchLine& line : infer::read_batch_file(file, {})) {
    const auto user = std::find_if(line.messages.begin(), line.messages.end(),
                                   [](const data::Message& message) { return message.role == "user"; });
    if (user != line.messages.end()) {
      questions.push_back(user->content);
    } else if (!line.turns.empty()) {
      questions.push_back(line.turns.front());
    } else if (!line.prompt.empty()) {
      questions.push_back(line.prompt);
    } else {
      throw data::InputError("--first-questions " + file + ":" + std::to_string(line.number) +
                             ": expected messages, turns or a prompt of the user, found none");
    }
  }
  return questions;
}

}  // namespace

Openings read_openings(const std::string& topics_file, const std::string& first_questions_file) {
  Openings openings;
  if (!topics_file.empty()) {
    openings.hashes["contents of --topics with hash"] = infer::summarise_file(topics_file).hash;
    openings.topics = read_topics(topics_file);
  }
  if (!first_questions_file.empty()) {
    openings.hashes["contents of --first-questions with hash"] =
        infer::summarise_file(first_questions_file).hash;
    openings.first_questions = read_first_questions(first_questions_file);
  }
  return openings;
}

}  // namespace clover::train
