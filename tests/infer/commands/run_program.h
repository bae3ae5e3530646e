#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace clover::test {

/// Sets an environment variable during its lifetime.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = ::getenv(name)) before_ = before;
    ::setenv(name, value.c_str(), 1);
  }
  ~Variable() {
    if (before_)
      ::setenv(name_, before_->c_str(), 1);
    else
      ::unsetenv(name_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

/// A real process with its output in files.
class Process {
 public:
  Process(const TemporaryFolder& folder, const std::vector<std::string>& arguments)
      : out_(folder / "stdout"), err_(folder / "stderr") {
    std::vector<char*> pointers;
    for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
    pointers.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");  // kill(-1) would signal all processes
    if (pid_ != 0) return;
    redirect(out_, STDOUT_FILENO);
    redirect(err_, STDERR_FILENO);
    // If the tests were started with these signals ignored, the program would inherit that.
    for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }

  void signal(int number) const { ::kill(pid_, number); }

  /// Exit code, or 1000 + the signal that ended it.
  int wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  std::string out() const { return text_of(out_); }
  std::string err() const { return text_of(err_); }

 private:
  static void redirect(const std::filesystem::path& file, int descriptor) {
    const int opened = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(opened, descriptor);
  }
  std::filesystem::path out_, err_;
  pid_t pid_ = -1;
};

struct Ran {
  int code;
  std::string out, err;
};

inline Ran run_program(const TemporaryFolder& folder, const std::vector<std::string>& arguments) {
  Process process(folder, arguments);
  const int code = process.wait();
  return {code, process.out(), process.err()};
}

}  // namespace clover::test
