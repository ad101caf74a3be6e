// The stream of what changes; whether it is open is shown at the top of the page.

export class Live {
  constructor(channels, { onState, onEvent, onLogout }) {
    this.source = new EventSource(`/api/live?channels=${channels.join(",")}`);
    this.source.addEventListener("open", () => onState(true, false));
    // After a lost connection the browser tries again by itself; after a refusal it does not.
    this.source.addEventListener("error", () => onState(false, this.source.readyState === EventSource.CLOSED));
    this.source.addEventListener("logout", () => {
      this.close();
      onLogout();
    });
    for (const name of ["node", ...channels]) {
      this.source.addEventListener(name, (event) => onEvent(name, JSON.parse(event.data)));
    }
  }

  close() {
    this.source.close();
  }
}
