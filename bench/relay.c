/* usage: relay NETNS_A ADDRESS_A NETNS_B ADDRESS_B DELAY_MS [MTU]
 *
 * A link with a delay between two network namespaces (made by `ip netns add`), for kernels without netem: a TUN device
 * `wire` in each, and this process between them, which hands every packet on DELAY_MS after it came. Addresses are
 * IPv4 with a prefix ("10.9.0.1/24"). The rate is capped by a qdisc of the devices (tc ... tbf), in front of the delay.
 * Prints "ready" when both ends are up; ends with SIGTERM, and the devices with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 1 << 16, DEFAULT_MTU = 9000 };

typedef struct {
    uint64_t due;
    uint32_t bytes;
    uint8_t *data;
} Packet;
typedef struct {
    int from, to;
    Packet *slot;
    unsigned head, tail;
} Way;

static int mtu = DEFAULT_MTU;

static void die(const char *what)
{
    fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The device of one end; the process stays in that namespace until the next call. */
static int end_of(const char *netns, const char *address)
{
    char text[512];
    snprintf(text, sizeof text, "/run/netns/%s", netns);
    int ns = open(text, O_RDONLY | O_CLOEXEC);
    if (ns < 0 || setns(ns, CLONE_NEWNET) != 0)
        die(text);
    close(ns);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(r.ifr_name, "wire");
    if (fd < 0 || ioctl(fd, TUNSETIFF, &r) != 0)
        die("/dev/net/tun");
    snprintf(text, sizeof text, "ip link set lo up && ip address add %s dev wire && ip link set dev wire mtu %d txqueuelen 10000 up",
             address, mtu);
    if (system(text) != 0)
        die(text);
    return fd;
}

static void take_in(Way *w, uint64_t delay)
{
    while (w->head - w->tail < SLOTS) {
        Packet *p = &w->slot[w->head % SLOTS];
        if (!p->data && !(p->data = malloc((size_t)mtu)))
            die("memory");
        ssize_t n = read(w->from, p->data, (size_t)mtu);
        if (n <= 0)
            return;
        p->bytes = (uint32_t)n;
        p->due = now() + delay;
        w->head++;
    }
}

/* Hands on what is due; nanoseconds until the next is, or UINT64_MAX. */
static uint64_t hand_on(Way *w)
{
    while (w->tail != w->head) {
        Packet *p = &w->slot[w->tail % SLOTS];
        uint64_t t = now();
        if (p->due > t)
            return p->due - t;
        if (write(w->to, p->data, p->bytes) < 0 && errno == EAGAIN)
            return 100000;
        w->tail++;
    }
    return UINT64_MAX;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr, "usage: relay NETNS_A ADDRESS_A NETNS_B ADDRESS_B DELAY_MS [MTU]\n");
        return 2;
    }
    mtu = argc > 6 ? atoi(argv[6]) : DEFAULT_MTU;
    if (mtu < 576 || mtu > 65535) {
        fprintf(stderr, "relay: an MTU of %d: 576 to 65535 are possible\n", mtu);
        return 2;
    }
    uint64_t delay = (uint64_t)(atof(argv[5]) * 1e6);
    int a = end_of(argv[1], argv[2]), b = end_of(argv[3], argv[4]);
    Way way[2] = {{a, b, calloc(SLOTS, sizeof(Packet)), 0, 0}, {b, a, calloc(SLOTS, sizeof(Packet)), 0, 0}};
    if (!way[0].slot || !way[1].slot)
        die("memory");
    prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0);
    puts("ready");
    fflush(stdout);
    for (;;) {
        struct pollfd p[2] = {{a, POLLIN, 0}, {b, POLLIN, 0}};
        uint64_t next = UINT64_MAX;
        for (int i = 0; i < 2; i++) {
            take_in(&way[i], delay);
            uint64_t t = hand_on(&way[i]);
            next = t < next ? t : next;
        }
        struct timespec t = {.tv_sec = (time_t)(next / 1000000000u), .tv_nsec = (long)(next % 1000000000u)};
        ppoll(p, 2, next == UINT64_MAX ? NULL : &t, NULL);
    }
}
