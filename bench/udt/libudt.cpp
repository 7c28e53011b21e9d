// SPDX-License-Identifier: MIT OR Apache-2.0
// libudt from memory to memory.
//
//   libudt receive PORT WINDOW         one connection; ten times a second the time (Unix's) and the bytes so far, a line each
//   libudt send ADDRESS PORT WINDOW    until it is killed
//
// WINDOW is what may be under way, in packets of 1500 bytes; the buffers of both ends have room for as many.

#include <arpa/inet.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <udt/udt.h>

namespace {

constexpr int payload = 1456;
constexpr int socket_buffer = 8 << 20;
constexpr std::size_t written_at_once = 1 << 18;

[[noreturn]] void give_up(const char* what) {
    std::fprintf(stderr, "%s: %s\n", what, UDT::getlasterror().getErrorMessage());
    std::exit(1);
}

sockaddr_in at(const char* host, const char* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) std::exit(2);
    return address;
}

void set(UDTSOCKET end, UDT::SOCKOPT option, int value) {
    if (UDT::setsockopt(end, 0, option, &value, sizeof value) == UDT::ERROR) give_up("setsockopt");
}

UDTSOCKET open(const char* window) {
    UDTSOCKET end = UDT::socket(AF_INET, SOCK_STREAM, 0);
    const int packets = std::atoi(window);
    // The window bounds the buffers, so it comes first.
    set(end, UDT_FC, packets);
    set(end, UDT_SNDBUF, packets * (payload + 16));
    set(end, UDT_RCVBUF, packets * (payload + 16));
    set(end, UDP_SNDBUF, socket_buffer);
    set(end, UDP_RCVBUF, socket_buffer);
    return end;
}

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void receive(const char* port, const char* window) {
    UDTSOCKET listener = open(window);
    sockaddr_in here = at("0.0.0.0", port);
    if (UDT::bind(listener, reinterpret_cast<sockaddr*>(&here), sizeof here) == UDT::ERROR) give_up("bind");
    if (UDT::listen(listener, 1) == UDT::ERROR) give_up("listen");
    std::fprintf(stderr, "ready\n");
    sockaddr_in from{};
    int length = sizeof from;
    UDTSOCKET end = UDT::accept(listener, reinterpret_cast<sockaddr*>(&from), &length);
    if (end == UDT::INVALID_SOCK) give_up("accept");
    std::vector<char> buffer(written_at_once);
    std::uint64_t bytes = 0;
    for (double told = 0;;) {
        int came = UDT::recv(end, buffer.data(), static_cast<int>(buffer.size()), 0);
        if (came == UDT::ERROR) return;
        bytes += static_cast<std::uint64_t>(came);
        if (double moment = now(); moment >= told + 0.1) {
            std::printf("%.6f %llu\n", moment, static_cast<unsigned long long>(bytes));
            std::fflush(stdout);
            told = moment;
        }
    }
}

void send(const sockaddr_in& to, const char* window) {
    UDTSOCKET end = open(window);
    if (UDT::connect(end, reinterpret_cast<const sockaddr*>(&to), sizeof to) == UDT::ERROR) give_up("connect");
    std::vector<char> buffer(written_at_once, 0x5a);
    while (UDT::send(end, buffer.data(), static_cast<int>(buffer.size()), 0) != UDT::ERROR) {}
}

}  // namespace

int main(int count, char** words) {
    const std::string task = count > 1 ? words[1] : "";
    UDT::startup();
    if (task == "receive" && count == 4) {
        receive(words[2], words[3]);
    } else if (task == "send" && count == 5) {
        send(at(words[2], words[3]), words[4]);
    } else {
        return 2;
    }
    UDT::cleanup();
    return 0;
}
