// The stream of events that says what changed: one at most in a tab, and none in a tab that can't be seen.
//
// A browser has six connections to a server for all its tabs, so at most four tabs hold a stream, by
// locks that the tabs share. The others ask every few seconds, as all do where the server has no stream.

const streams = 4;
const again = 15_000; // until the next try after one that failed, in ms

// Stream calls heard(name, data) for each event, and turned() when live changes.
export class Stream {
  live = false;
  #source = null;
  #release = null; // gives the lock back
  #opening = false;
  #notBefore = 0;
  #run = "";

  constructor(heard, turned) {
    this.heard = heard;
    this.turned = turned;
  }

  // keep opens the stream with the events of a run, "" for none, unless it is open.
  async keep(run) {
    if (this.#source && run !== this.#run) {
      this.#source.close();
      this.#connect(run);
    }
    if (this.#source || this.#opening || Date.now() < this.#notBefore) return;
    this.#opening = true;
    this.#notBefore = Date.now() + again;
    this.#release ??= await takeLock();
    this.#opening = false;
    if (!this.#release) return;
    if (document.hidden) this.close();
    else this.#connect(run);
  }

  // close ends the stream and lets another tab have it. The next keep opens it at once.
  close() {
    this.#source?.close();
    this.#release?.();
    this.#source = this.#release = null;
    this.#notBefore = 0;
    this.#turn(false);
  }

  #connect(run) {
    this.#run = run;
    const source = new EventSource(`/v1/stream${run ? `?run=${encodeURIComponent(run)}` : ""}`);
    source.onopen = () => this.#turn(true);
    source.onerror = () => {
      if (source !== this.#source) return;
      this.#turn(false);
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again
      this.close(); // the server has no stream, or none for this tab
      this.#notBefore = Date.now() + again;
    };
    for (const name of ["overview", "run"]) {
      source.addEventListener(name, (e) => {
        let data;
        try {
          data = JSON.parse(e.data);
        } catch {
          data = null; // an event says that something changed, whatever is in it
        }
        this.heard(name, data);
      });
    }
    this.#source = source;
  }

  #turn(live) {
    if (this.live === live) return;
    this.live = live;
    this.turned();
  }
}

// takeLock returns a function that gives one of the locks back, or null if other tabs have all.
// Without locks, which a browser has only on this machine and over HTTPS, there is no stream.
async function takeLock() {
  for (let n = 0; navigator.locks && n < streams; n++) {
    const release = await new Promise((resolve) => {
      navigator.locks.request(`rollout-stream-${n}`, { ifAvailable: true }, (lock) => {
        if (lock) return new Promise((free) => resolve(free));
        resolve(null);
      }).catch(() => resolve(null));
    });
    if (release) return release;
  }
  return null;
}
