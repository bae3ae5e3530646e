#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "data/files/files.h"
#include "data/files/safetensors.h"
#include "tests/infer/commands/run_program.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/run/tiny_run.h"

namespace clover::train {

namespace fs = std::filesystem;

/// Runs `clover-train fit` on a tiny target, in processes of their own.
class FitProcessTest : public testing::Test {
 protected:
  void SetUp() override { write_counting_store(folder_ / "store", 20); }

  std::vector<std::string> command(const fs::path& output, std::vector<std::string> more = {}) const {
    const std::string settings =
        "steps = 40\nbatch = 4\nmicro-batch = 3\ndraft-vocab = 100\neval-prompts = 0\ncheckpoint-every = 3\n"
        "threads = 1\nwarmup = 5\n";
    data::write_file_atomically(folder_ / "tiny.toml", settings);
    std::vector<std::string> words{program(),  "fit",         "--config", folder_ / "tiny.toml",
                                   "--target", tiny_target(), "--data",   folder_ / "store",
                                   "--output", output};
    // A --config in `more` replaces the common one.
    if (!more.empty() && more[0] == "--config") words.erase(words.begin() + 2, words.begin() + 4);
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  static std::string program() { return CLOVER_BINARY_DIR "/bin/clover-train"; }

  /// The same command without GOMP_SPINCOUNT, so that the program restarts itself (clover_train.cc).
  static std::vector<std::string> as_users_start_it(std::vector<std::string> words) {
    words.insert(words.begin(), {"/usr/bin/env", "-u", "GOMP_SPINCOUNT"});
    return words;
  }

  pid_t start(const std::vector<std::string>& words) const {
    const pid_t process = ::fork();
    if (process < 0) throw std::runtime_error("fork failed");  // kill(-1) would reach everybody
    if (process == 0) {
      const int out = ::open((folder_ / "stderr").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(out, STDERR_FILENO);
      ::dup2(out, STDOUT_FILENO);
      std::vector<char*> arguments;
      for (const auto& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    return process;
  }

  /// Waits for a process: its exit code, or minus the signal.
  static int wait(pid_t process) {
    int status = 0;
    ::waitpid(process, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  int run(const std::vector<std::string>& words) const { return wait(start(words)); }

  static int64_t logged_steps(const fs::path& output) {
    if (!fs::exists(output / "log.jsonl")) return 0;
    const std::string text = data::read_file(output / "log.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  }

  /// Runs a command and sends it `signal` when `steps` lines are logged, unless it ends before; returns as
  /// `wait`.
  int interrupt_after(const std::vector<std::string>& words, const fs::path& output, int64_t steps,
                      int signal) const {
    const pid_t process = start(words);
    for (int tick = 0; tick < 60000; ++tick) {
      int status = 0;
      if (::waitpid(process, &status, WNOHANG) == process)
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
      if (logged_steps(output) >= steps) ::kill(process, signal);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(process, SIGKILL);
    return wait(process);
  }

  /// The contents of every file of a folder, by name.
  static std::map<std::string, std::string> contents_of(const fs::path& folder) {
    std::map<std::string, std::string> contents;
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (entry.is_regular_file()) contents[entry.path()] = data::read_file(entry.path());
    }
    return contents;
  }

  /// Rewrites one tensor of a file.
  static void change_tensor(const fs::path& file, const std::string& name,
                            const std::function<at::Tensor(const at::Tensor&)>& change) {
    data::NamedTensors tensors;
    const auto reader = data::SafetensorsReader::open(file);
    for (const std::string& each : reader.names())
      tensors.emplace_back(each, each == name ? change(reader.read(each)) : reader.read(each).clone());
    data::write_safetensors(file, tensors);
  }

  std::string messages() const { return data::read_file(folder_ / "stderr"); }
  static std::string weights(const fs::path& output) {
    return data::read_file(output / "last/model.safetensors");
  }

  // The value that clover-train would set, so that it does not restart itself: loading the program twice
  // takes longer than most of these runs.
  const test::Variable spins_{"GOMP_SPINCOUNT", "10000"};
  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

}  // namespace clover::train
