#ifndef LOWKEY_TESTS_TESTING_CERTIFICATES_H_
#define LOWKEY_TESTS_TESTING_CERTIFICATES_H_

#include <memory>
#include <string>

namespace lowkey {

// An authority that signs certificates for localhost, 127.0.0.1 and ::1, all with new keys. Aborts
// when OpenSSL refuses.
class TestAuthority {
 public:
  struct Issued {
    std::string certificate, key;  // PEM
  };
  struct IssueOptions {
    int begins_in_days = -1, ends_in_days = 1;
    bool is_weak = false;  // with an RSA key of 512 bits
  };

  explicit TestAuthority(const std::string& name);
  ~TestAuthority();

  const std::string& certificate() const { return own_.certificate; }
  Issued Issue(const std::string& name, const IssueOptions& options) const;
  Issued Issue(const std::string& name) const { return Issue(name, {}); }

 private:
  struct Keys;

  std::unique_ptr<Keys> keys_;
  Issued own_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_CERTIFICATES_H_
