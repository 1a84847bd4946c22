// libroctx64.so.4 of the emulated device: markers go nowhere, as with no tracing tool attached, but
// ranges are counted, since a push returns the level that it opened and a pop the one that it
// closed.

static _Thread_local int level;

void roctxMarkA(const char *text) { (void)text; }

int roctxRangePushA(const char *text) {
    (void)text;
    return level++;
}

int roctxRangePop(void) { return level > 0 ? --level : -1; }
