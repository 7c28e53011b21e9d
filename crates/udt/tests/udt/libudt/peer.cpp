// SPDX-License-Identifier: MIT OR Apache-2.0
// Peer program over libudt: sends its standard input over one connection, or writes what it receives to its standard
// output.
//
//   peer send|receive stream|message|file listen|connect|rendezvous LOCAL_PORT REMOTE_ADDRESS REMOTE_PORT [BUFFER PAUSE]
//
// Addresses are IPv4. A stream is written or read BUFFER bytes at a time (100000), with PAUSE microseconds (0) after each
// call. A file is a stream by UDT::sendfile or UDT::recvfile, BUFFER bytes long, which must be given: a regular file on the
// standard stream. Message mode only requests a connection, which is refused.

#include <arpa/inet.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <udt/udt.h>

namespace {

struct Calls {
    std::size_t bytes;
    unsigned pause_us;
};

[[noreturn]] void fail(const char* operation) {
    std::fprintf(stderr, "%s: %s\n", operation, UDT::getlasterror().getErrorMessage());
    std::exit(1);
}

sockaddr_in parse_address(const char* host, const char* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) std::exit(2);
    return address;
}

UDTSOCKET open_connection(const std::string& kind, const std::string& mode, const char* local, const sockaddr_in& remote) {
    UDTSOCKET socket = UDT::socket(AF_INET, kind == "message" ? SOCK_DGRAM : SOCK_STREAM, 0);
    bool rendezvous = mode == "rendezvous";
    UDT::setsockopt(socket, 0, UDT_RENDEZVOUS, &rendezvous, sizeof rendezvous);
    sockaddr_in local_address = parse_address("0.0.0.0", local);
    if (UDT::bind(socket, reinterpret_cast<sockaddr*>(&local_address), sizeof local_address) == UDT::ERROR) fail("bind");
    if (mode == "listen") {
        if (UDT::listen(socket, 4) == UDT::ERROR) fail("listen");
        std::fprintf(stderr, "ready\n");
        sockaddr_in from{};
        int length = sizeof from;
        UDTSOCKET accepted = UDT::accept(socket, reinterpret_cast<sockaddr*>(&from), &length);
        if (accepted == UDT::INVALID_SOCK) fail("accept");
        return accepted;
    }
    std::fprintf(stderr, "ready\n");
    if (UDT::connect(socket, reinterpret_cast<const sockaddr*>(&remote), sizeof remote) == UDT::ERROR) fail("connect");
    return socket;
}

void pause(const Calls& calls) {
    if (calls.pause_us > 0) usleep(calls.pause_us);
}

void send_stream(UDTSOCKET to, const Calls& calls) {
    std::vector<char> buffer(calls.bytes);
    while (std::size_t length = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
        for (std::size_t sent = 0; sent < length;) {
            int more = UDT::send(to, buffer.data() + sent, static_cast<int>(length - sent), 0);
            if (more == UDT::ERROR) fail("send");
            sent += static_cast<std::size_t>(more);
        }
        pause(calls);
    }
}

void send_file(UDTSOCKET to, const Calls& calls) {
    std::fstream file("/dev/stdin", std::ios::in | std::ios::binary);
    std::int64_t offset = 0;
    if (UDT::sendfile(to, file, offset, static_cast<std::int64_t>(calls.bytes)) == UDT::ERROR) fail("sendfile");
}

void receive_stream(UDTSOCKET from, const Calls& calls) {
    std::vector<char> buffer(calls.bytes);
    for (;;) {
        int length = UDT::recv(from, buffer.data(), static_cast<int>(buffer.size()), 0);
        // The peer closed the connection, and all data was read.
        if (length == UDT::ERROR) return;
        std::fwrite(buffer.data(), 1, static_cast<std::size_t>(length), stdout);
        pause(calls);
    }
}

void receive_file(UDTSOCKET from, const Calls& calls) {
    std::fstream file("/dev/stdout", std::ios::out | std::ios::binary | std::ios::trunc);
    std::int64_t offset = 0;
    if (UDT::recvfile(from, file, offset, static_cast<std::int64_t>(calls.bytes)) == UDT::ERROR) fail("recvfile");
}

std::size_t default_bytes(const std::string& kind) { return kind == "file" ? 0 : 100000; }

}  // namespace

int main(int argc, char** argv) {
    if (argc < 7 || argc > 9) return 2;
    const std::string command = argv[1], kind = argv[2];
    const Calls calls{argc > 7 ? std::strtoul(argv[7], nullptr, 10) : default_bytes(kind),
                      argc > 8 ? static_cast<unsigned>(std::atoi(argv[8])) : 0};
    if (calls.bytes == 0) return 2;
    UDT::startup();
    UDTSOCKET socket = open_connection(kind, argv[3], argv[4], parse_address(argv[5], argv[6]));
    if (command == "send") {
        kind == "file" ? send_file(socket, calls) : send_stream(socket, calls);
    } else {
        kind == "file" ? receive_file(socket, calls) : receive_stream(socket, calls);
    }
    std::fflush(stdout);
    // close() waits until all data is acknowledged.
    UDT::close(socket);
    UDT::cleanup();
    return 0;
}
