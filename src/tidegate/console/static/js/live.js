// The stream of what changes. The browser opens it again by itself; whether it is open is shown at the top.

export class Live {
  constructor(channels, { onState, onEvent, onLogout }) {
    this.source = new EventSource(`/api/live?channels=${channels.join(",")}`);
    this.source.addEventListener("open", () => onState(true));
    this.source.addEventListener("error", () => onState(false));
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
