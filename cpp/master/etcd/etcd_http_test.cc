// Requests to servers that answer one thing to all of them, plain and over TLS.
#include "master/etcd/etcd_http.h"

#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "master/test_folder.h"

namespace jccl::master {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using base::Code;
using base::Status;
using boost::system::error_code;

// A key and a certificate for 127.0.0.1 that it has signed itself.
void make_certificate(const std::string& cert_path, const std::string& key_path) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* cert = X509_new();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("etcd"), -1, -1, 0);
  X509_set_issuer_name(cert, name);
  X509_EXTENSION* host =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
  X509_add_ext(cert, host, -1);
  X509_EXTENSION_free(host);
  X509_sign(cert, key, EVP_sha256());
  std::FILE* file = std::fopen(cert_path.c_str(), "w");
  PEM_write_X509(file, cert);
  std::fclose(file);
  file = std::fopen(key_path.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  X509_free(cert);
  EVP_PKEY_free(key);
}

// One connection after the other, one request each.
class Server {
 public:
  using Answer = std::function<std::string(std::string_view path, std::string_view token)>;
  explicit Server(std::string reply, asio::ssl::context* tls = nullptr)
      : Server([reply](auto, auto) { return reply; }, tls) {}
  explicit Server(Answer reply, asio::ssl::context* tls = nullptr)
      : reply_(std::move(reply)),
        tls_(tls),
        acceptor_(io_, {asio::ip::address_v4::loopback(), 0}),
        thread_([this] { serve(); }) {}
  ~Server() {
    stop_ = true;
    error_code ignored;
    tcp::socket wake(io_);
    wake.connect(acceptor_.local_endpoint(), ignored);
    thread_.join();
  }
  EtcdWhere where(const std::string& host = "127.0.0.1") const {
    EtcdWhere out;
    out.endpoints = {{host, acceptor_.local_endpoint().port()}};
    out.tls = tls_ != nullptr;
    out.lease = 30 * base::kSecond;
    return out;
  }

 private:
  void serve() {
    while (!stop_) {
      tcp::socket socket(io_);
      error_code error;
      acceptor_.accept(socket, error);
      if (stop_ || error) return;
      if (tls_ == nullptr) {
        talk(socket);
        continue;
      }
      asio::ssl::stream<tcp::socket> stream(std::move(socket), *tls_);
      stream.handshake(asio::ssl::stream_base::server, error);
      if (!error) talk(stream);
    }
  }
  template <typename Stream>
  void talk(Stream& stream) {
    namespace http = boost::beast::http;
    boost::beast::flat_buffer buffer;
    http::request<http::string_body> request;
    error_code error;
    http::read(stream, buffer, request, error);
    if (error) return;
    const std::string reply = reply_(request.target(), request[http::field::authorization]);
    asio::write(stream, asio::buffer(reply), error);
  }

  const Answer reply_;
  asio::ssl::context* const tls_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

std::string answer(int code, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(code) +
         " So\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" +
         body;
}

base::Result<std::string> post(const EtcdWhere& where, base::Duration most = 20 * base::kSecond) {
  auto http = EtcdHttp::open(where);
  if (!http.ok()) return http.status();
  return http.value()->post("/v3/kv/txn", "{}", boot_now() + most,
                            [](const std::string&) { return Status{}; });
}

TEST(EtcdHttpTest, a_user_gets_a_token_and_a_new_one_when_etcd_forgot_it) {
  std::atomic<int> logins{0};
  const Server etcd([&](std::string_view path, std::string_view token) {
    if (path == "/v3/auth/authenticate") {
      ++logins;
      return answer(200, "{\"token\":\"t" + std::to_string(logins) + "\"}");
    }
    return token == "t2" ? answer(200, "yes")
                         : answer(401, R"({"message":"etcdserver: invalid auth token"})");
  });
  EtcdWhere where = etcd.where();
  where.user = "jccl", where.password = "secret";
  EXPECT_EQ(post(where).value(), "yes");
  EXPECT_EQ(logins, 2);
}

TEST(EtcdHttpTest, a_wrong_password_is_told_with_the_user_and_without_the_password) {
  const Server etcd(answer(400, R"({"message":"authentication failed"})"));
  EtcdWhere where = etcd.where();
  where.user = "jccl", where.password = "secret";
  const Status status = post(where).status();
  EXPECT_EQ(status.code, Code::kAuth);
  EXPECT_NE(status.text.find("for user jccl etcd refused: authentication failed"),
            std::string::npos)
      << status.text;
  EXPECT_EQ(status.text.find("secret"), std::string::npos);
  const Server odd(answer(200, R"({"token":"a\r\nb"})"));
  where = odd.where();
  where.user = "jccl", where.password = "secret";
  EXPECT_EQ(post(where, 100 * base::kMillisecond).status().code, Code::kLinkLost);
}

TEST(EtcdHttpTest, an_answer_is_told_from_a_refusal_and_from_trouble_that_may_pass) {
  const Server right(answer(200, "yes"));
  EXPECT_EQ(post(right.where()).value(), "yes");
  const Server denied(answer(401, R"({"message":"who are you?"})"));
  EXPECT_EQ(post(denied.where()).status().code, Code::kAuth);
  EXPECT_EQ(post(denied.where()).status().text, "etcd refused: who are you?");
  const Server odd(answer(400, "<html>"));
  EXPECT_EQ(post(odd.where()).status().text, "etcd refused: '<html>'");
  const Server busy(answer(500, "[]"));
  const Status status = post(busy.where(), 100 * base::kMillisecond).status();
  EXPECT_EQ(status.code, Code::kLinkLost);
  EXPECT_NE(status.text.find(": 500 '[]'"), std::string::npos) << status.text;
}

TEST(EtcdHttpTest, an_answer_that_announces_too_much_is_refused_before_it_is_read) {
  const Server huge("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n");
  EXPECT_EQ(post(huge.where()).status().code, Code::kLimit);
}

TEST(EtcdHttpTest, a_host_that_does_not_resolve_is_named_and_the_next_one_is_asked) {
  const Server right(answer(200, "yes"));
  EtcdWhere where = right.where();
  const std::string nobody(70, 'x');  // longer than any label, so no name server is asked
  where.endpoints.insert(where.endpoints.begin(), {nobody, 1});
  EXPECT_EQ(post(where).value(), "yes");
  where.endpoints.pop_back();
  const Status status = post(where, 100 * base::kMillisecond).status();
  EXPECT_EQ(status.code, Code::kLinkLost);
  EXPECT_NE(status.text.find(nobody), std::string::npos) << status.text;
}

class EtcdTlsTest : public FolderTest {
 protected:
  void SetUp() override {
    for (const char* who : {"etcd", "master"}) make_certificate(file(who), file(who, "-key"));
    context_.use_certificate_chain_file(file("etcd"));
    context_.use_private_key_file(file("etcd", "-key"), asio::ssl::context::pem);
  }
  std::string file(const std::string& who, const std::string& what = "") const {
    return (folder_ / (who + what + ".pem")).string();
  }

  asio::ssl::context context_{asio::ssl::context::tls_server};
};

TEST_F(EtcdTlsTest, etcd_is_believed_by_its_certificate_alone) {
  const Server server(answer(200, "yes"), &context_);
  EtcdWhere where = server.where();
  EXPECT_EQ(post(where).status().code, Code::kAuth);  // nobody of the system's list signed it
  where.ca = file("etcd");
  EXPECT_EQ(post(where).value(), "yes");
  EtcdWhere by_name = server.where("localhost");  // the certificate is for an address
  by_name.ca = where.ca;
  EXPECT_EQ(post(by_name).status().code, Code::kAuth);  // though nobody listens on ::1
  where.ca = file("master");
  const Status status = post(where).status();
  EXPECT_EQ(status.code, Code::kAuth);
  EXPECT_NE(status.text.find("TLS handshake"), std::string::npos) << status.text;
}

TEST_F(EtcdTlsTest, a_master_shows_its_certificate) {
  context_.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  context_.load_verify_file(file("master"));
  const Server server(answer(200, "yes"), &context_);
  EtcdWhere where = server.where();
  where.ca = file("etcd");
  EXPECT_FALSE(post(where, 100 * base::kMillisecond).ok());
  where.cert = file("master");
  where.key = file("master", "-key");
  EXPECT_EQ(post(where).value(), "yes");
}

TEST_F(EtcdTlsTest, a_file_that_cannot_be_used_is_named) {
  EtcdWhere where;
  where.endpoints = {{"127.0.0.1", 1}};
  where.tls = true;
  const auto unusable = [&] {
    const Status status = EtcdHttp::open(where).status();
    EXPECT_EQ(status.code, Code::kInvalid);
    return status.text;
  };
  where.ca = file("nobody");
  EXPECT_EQ(unusable().find("etcd's TLS: " + where.ca + " can't be used"), 0u);
  where.ca = file("etcd");
  where.cert = file("etcd", "-key");
  where.key = file("etcd", "-key");
  EXPECT_EQ(unusable().find("etcd's TLS: " + where.cert), 0u);
  where.cert = file("etcd");
  where.key = file("master", "-key");  // another's
  EXPECT_EQ(unusable().find("etcd's TLS: " + where.key), 0u);
}

}  // namespace
}  // namespace jccl::master
