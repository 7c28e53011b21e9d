// SPDX-License-Identifier: MIT OR Apache-2.0
// Transfers data from memory to memory over libudt.
//
//   libudt receive PORT WINDOW                  receives one connection; prints the bytes, the time from the first to the last
//                                               of them, and its CPU time in seconds
//   libudt send ADDRESS PORT WINDOW SECONDS     sends for so long; prints its CPU time
//
// WINDOW is the limit of data in flight, in packets of 1500 bytes. The buffers of both ends hold as many.

#include <arpa/inet.h>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include <udt/udt.h>

namespace {

constexpr int payload = 1456;
constexpr int socket_buffer = 8 << 20;
constexpr std::size_t io_size = 1 << 18;

[[noreturn]] void fail(const char* call) {
    std::fprintf(stderr, "%s: %s\n", call, UDT::getlasterror().getErrorMessage());
    std::exit(1);
}

sockaddr_in parse_address(const char* host, const char* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(port)));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) std::exit(2);
    return address;
}

void set_option(UDTSOCKET socket, UDT::SOCKOPT option, int value) {
    if (UDT::setsockopt(socket, 0, option, &value, sizeof value) == UDT::ERROR) fail("setsockopt");
}

UDTSOCKET open_socket(const char* window) {
    UDTSOCKET socket = UDT::socket(AF_INET, SOCK_STREAM, 0);
    const int packets = std::atoi(window);
    // The window limits the buffers, so it is set first.
    set_option(socket, UDT_FC, packets);
    set_option(socket, UDT_SNDBUF, packets * (payload + 16));
    set_option(socket, UDT_RCVBUF, packets * (payload + 16));
    set_option(socket, UDP_SNDBUF, socket_buffer);
    set_option(socket, UDP_RCVBUF, socket_buffer);
    return socket;
}

// User and system time of all threads.
double cpu_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double now() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void receive(const char* port, const char* window) {
    UDTSOCKET listener = open_socket(window);
    sockaddr_in local = parse_address("0.0.0.0", port);
    if (UDT::bind(listener, reinterpret_cast<sockaddr*>(&local), sizeof local) == UDT::ERROR) fail("bind");
    if (UDT::listen(listener, 1) == UDT::ERROR) fail("listen");
    std::fprintf(stderr, "ready\n");
    sockaddr_in from{};
    int length = sizeof from;
    UDTSOCKET connection = UDT::accept(listener, reinterpret_cast<sockaddr*>(&from), &length);
    if (connection == UDT::INVALID_SOCK) fail("accept");
    std::vector<char> buffer(io_size);
    unsigned long long bytes = 0;
    double first = 0, last = 0;
    int received;
    while ((received = UDT::recv(connection, buffer.data(), static_cast<int>(buffer.size()), 0)) != UDT::ERROR) {
        bytes += static_cast<unsigned long long>(received);
        last = now();
        if (first == 0) first = last;
    }
    std::printf("%llu %.6f %.6f\n", bytes, last - first, cpu_seconds());
}

void send(const sockaddr_in& to, const char* window, double seconds) {
    UDTSOCKET connection = open_socket(window);
    if (UDT::connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == UDT::ERROR) fail("connect");
    std::vector<char> buffer(io_size, 0x5a);
    const double end = now() + seconds;
    while (now() < end && UDT::send(connection, buffer.data(), static_cast<int>(buffer.size()), 0) != UDT::ERROR) {}
    UDT::close(connection);
    std::printf("%.6f\n", cpu_seconds());
}

}  // namespace

int main(int argc, char** argv) {
    const std::string command = argc > 1 ? argv[1] : "";
    UDT::startup();
    if (command == "receive" && argc == 4) {
        receive(argv[2], argv[3]);
    } else if (command == "send" && argc == 6) {
        send(parse_address(argv[2], argv[3]), argv[4], std::atof(argv[5]));
    } else {
        return 2;
    }
    UDT::cleanup();
    return 0;
}
