// Destructors run when a thread is cancelled in a call on evicted memory, and exceptions pass.
#include "story.h"
#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static int fds[2];
static std::atomic<int> destroyed;

struct Guard {
    ~Guard() { destroyed++; }
};

static void *cancelled(void *) {
    Guard outer;
    unsigned char *p = static_cast<unsigned char *>(fresh(8 * PAGE));
    Guard inner;
    for (;;) {
        evict(p, 8 * PAGE);
        read(fds[0], p, 8 * PAGE);
    }
}

static void on_signal(int) {}

int main() {
    CHECK(pipe(fds) == 0);
    for (int i = 0; i < 20; i++) {
        pthread_t t;
        void *ret;
        destroyed = 0;
        CHECK(pthread_create(&t, nullptr, cancelled, nullptr) == 0);
        sleep_ms(3);
        CHECK(pthread_cancel(t) == 0);
        CHECK(pthread_join(t, &ret) == 0 && ret == PTHREAD_CANCELED);
        CHECK(destroyed == 2);
    }
    /* Exceptions whose objects and frames have been evicted. */
    std::vector<std::string> *v = new std::vector<std::string>;
    for (int i = 0; i < 2000; i++) {
        try {
            v->push_back(std::string(100, 'x'));
            evict(v->data(), v->size() * sizeof(std::string));
            if (i % 3 == 0)
                throw std::runtime_error(v->back());
        } catch (const std::runtime_error &e) {
            CHECK(strlen(e.what()) == 100);
        }
    }
    struct sigaction sa = {};
    sa.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &sa, nullptr) == 0);
    std::atomic<bool> done{false};
    std::thread t([&] {
        unsigned char *p = static_cast<unsigned char *>(fresh(PAGE));
        while (!done) {
            evict(p, PAGE);
            ssize_t n = read(fds[0], p, PAGE);
            CHECK(n == 1 || (n == -1 && errno == EINTR));
        }
    });
    for (int i = 0; i < 1000; i++)
        pthread_kill(t.native_handle(), SIGUSR1);
    done = true;
    CHECK(write(fds[1], "x", 1) == 1);
    t.join();
    return 0;
}
